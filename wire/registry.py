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
    """How a version is served: slots of the packed engine, or an own copy of the weights."""

    PACKED = "packed"
    MERGED = "merged"


class ModelRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A base model. Bucket ``models``, key ``encode_token(id)``.

    ``source`` tells workers where the weights are: ``package:<python package>[/sub/dir]``, ``path:<dir>`` or
    ``hub:<repository id>``. ``created`` is seconds since the epoch.
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


class VersionRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A ready version. ``digest`` is the SHA-256 of its canonical artifact (see ``wire.canonical``)."""

    number: int
    digest: str
    size_bytes: int
    rank: int
    mode: Mode = Mode.PACKED
    created: int = 0


class AdapterRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """An adapter. Bucket ``adapters``, key ``encode_token(full name)``. ``aliases``: alias → number → weight."""

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
