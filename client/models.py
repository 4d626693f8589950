"""Typed answers of the control plane; unknown fields are ignored."""

from __future__ import annotations

from typing import Any

import msgspec

FINAL_STATES = frozenset({"ready", "rejected", "retired", "needs_input"})


class ReportRow(msgspec.Struct, frozen=True):
    """One check of a validation."""

    check: str
    outcome: str
    code: str
    found: str = ""
    todo: str = ""


class Question(msgspec.Struct, frozen=True):
    """The one fact that ``needs_input`` asks for."""

    field: str
    text: str
    choices: list[str] = []

    @property
    def option(self) -> str:
        """The option of ``shoal push`` that answers it."""
        return f"--{self.field.replace('_', '-')}"


class Report(msgspec.Struct, frozen=True):
    """Rows of a validation, and the question where one is asked."""

    rows: list[ReportRow] = []
    question: Question | None = None


class VersionInfo(msgspec.Struct, frozen=True):
    """A version. ``duplicate_upload``: number of an upload whose content existed already. ``known``: the same bytes
    were there before, and nothing was registered."""

    name: str
    number: int
    state: str
    digest: str = ""
    mode: str = ""
    mode_reason: str = ""
    size_bytes: int = 0
    message: str = ""
    created_at: str = ""
    report: Report | None = None
    aliases: list[str] = []
    url: str = ""
    duplicate_upload: int | None = None
    known: bool = False

    @property
    def address(self) -> str:
        """What the ``model`` field of a request takes for exactly this version."""
        return f"{self.name}@{self.number}"

    @property
    def question(self) -> Question | None:
        """What is asked, if anything."""
        return self.report.question if self.report is not None else None

    @property
    def settled(self) -> bool:
        """Whether validation has come to an end or waits for a person."""
        return self.state in FINAL_STATES


class Measured(msgspec.Struct, frozen=True):
    """One measured model: ``new``, ``live`` or ``base``."""

    role: str
    name: str
    metrics: dict[str, float] = {}
    problem: str = ""


class Evaluation(msgspec.Struct, frozen=True):
    """What the uploader's own rows say of a version."""

    state: str
    kind: str = ""
    rows: int = 0
    results: list[Measured] = []
    decision: str = ""
    error: str = ""

    @property
    def ended(self) -> bool:
        """Whether it was measured, or cannot be."""
        return self.state in {"done", "failed"}


class AdapterSummary(msgspec.Struct, frozen=True):
    """An adapter. ``aliases``: alias → version number as text → weight."""

    name: str
    base_model: str | None = None
    kind: str = "lora"
    aliases: dict[str, dict[str, int]] = {}


class Device(msgspec.Struct, frozen=True):
    """What a worker runs on."""

    name: str
    kind: str


class Figures(msgspec.Struct, frozen=True):
    """A worker's last second; ``None`` is unknown, never 0."""

    utilization: float | None = None
    requests_per_s: float | None = None
    tokens_per_s: float | None = None


class Live(msgspec.Struct, frozen=True):
    """Live part of a worker: absent when nothing was heard of it lately."""

    figures: Figures
    adapters: list[dict[str, Any]] | None = None


class WorkerInfo(msgspec.Struct, frozen=True):
    """A worker as the control plane last saw it."""

    id: str
    machine: str
    worker: str
    pool: str
    state: str
    stale: bool = False
    last_seen_s: float | None = None
    device: Device | None = None
    live: Live | None = None


class Me(msgspec.Struct, frozen=True):
    """Whose key this is, and where requests go."""

    team: str
    scopes: list[str] = []
    gateway_url: str = ""


class Embeddings(msgspec.Struct, frozen=True):
    """Vectors in input order with what the gateway said about the request."""

    vectors: list[list[float]]
    version: str
    digest: str
    queue_ms: float
    batch_size: int
    tokens: int
    elapsed_ms: float
