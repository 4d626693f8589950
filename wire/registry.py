"""Records of the KV buckets, written only by the control plane, read by gateways and sidecars."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from wire.jobs import Task


class Scope(StrEnum):
    """What an API key may do. ``admin`` implies all but ``machine``."""

    READ = "read"
    PUSH = "push"
    INFER = "infer"
    ADMIN = "admin"
    MACHINE = "machine"


class Mode(StrEnum):
    """How a version is served: from slots of the packed engine, as an own copy of the base's weights with the adapter
    applied, or as a whole model of its own (a fine-tune)."""

    PACKED = "packed"
    MERGED = "merged"
    FULL = "full"


class ModelRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What has weights of its own: a base model, or a version served ``merged`` or ``full``. Bucket ``models``, key
    ``encode_token(id)``.

    ``source`` tells workers where the weights are: ``package:<python package>[/sub/dir]``, ``path:<dir>``,
    ``hub:<repository id>``, or ``artifact:`` for the file ``artifact`` itself. ``created`` is seconds since the epoch.

    A version's record has the id ``team/adapter@number``, its ``team`` (it exists for nobody else), its digest as
    both ``digest`` and ``artifact``, and ``pinned`` false. Merged: ``source`` and ``base_digest`` are those of the
    base model, and the canonical artifact is applied to a copy. Full: ``source`` is ``artifact:``.
    """

    id: str
    digest: str
    source: str
    tasks: list[Task]
    pool: str
    max_tokens: int
    dimension: int | None
    created: int
    pinned: bool = True
    size_bytes: int = 0
    team: str | None = None
    artifact: str | None = None
    base_digest: str | None = None

    @property
    def is_version(self) -> bool:
        """Whether this is a version of a team rather than a base model."""
        return self.team is not None


class VersionRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A ready version. ``digest`` is the SHA-256 of its canonical artifact (see ``wire.canonical``).

    ``tasks`` are those it serves; empty means those of its base model. A version that is not ``packed`` is served by
    the model record ``<adapter>@<number>``.
    """

    number: int
    digest: str
    size_bytes: int
    rank: int
    mode: Mode = Mode.PACKED
    created: int = 0
    tasks: list[Task] = []


class AdapterRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """An adapter. Bucket ``adapters``, key ``encode_token(full name)``. ``aliases``: alias → number → weight.

    ``base_model`` is "" for a fine-tune whose base is not registered.
    """

    name: str
    team: str
    base_model: str
    versions: dict[int, VersionRecord]
    aliases: dict[str, dict[int, int]]


class KeyRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """An API key. Bucket ``keys``, key = SHA-256 (hex) of the secret. ``expires`` is seconds since the epoch."""

    id: str
    team: str
    scopes: list[Scope]
    expires: float | None = None
    max_in_flight: int | None = None
    requests_per_minute: int | None = None

    def allows(self, scope: Scope) -> bool:
        """Whether the key may act in ``scope``."""
        return scope in self.scopes or (scope is not Scope.MACHINE and Scope.ADMIN in self.scopes)
