"""The worker card: the texts a page is rendered with before the first message of the socket replaces them in place."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.looks import Look, look_of
from fleet import payloads
from fleet.figures import UNKNOWN, age, amount, duration, percent, size, size_of
from fleet.rows import FleetRows, WorkerRow
from wire.telemetry import DeviceSample, ResidentModel

CARD_ADAPTERS = 8

KINDS = {"cpu": "CPU", "cuda": "GPU", "simulated": "Simulated device"}


@dataclass(frozen=True, slots=True)
class Figure:
    """One labelled figure. ``name`` is what the script finds it by; ``share`` (0 to 100) draws a meter below it."""

    name: str
    label: str
    value: str
    unit: str = ""
    hint: str = ""
    share: float | None = None
    metered: bool = False


@dataclass(frozen=True, slots=True)
class AdapterLine:
    """One resident adapter. ``name`` is empty for another team's."""

    digest: str
    name: str
    tier: str
    slot: int
    size: str
    hits: str
    last_used: str
    pinned: bool

    @property
    def url_parts(self) -> tuple[str, str] | None:
        """(team, adapter) of the version's page."""
        team, slash, rest = self.name.partition("/")
        return (team, rest.partition("@")[0]) if slash else None


@dataclass(frozen=True, slots=True)
class ModelLine:
    """One resident base model."""

    id: str
    slots_used: int
    slots: int
    size: str
    pinned: bool

    @property
    def share(self) -> float:
        """Used slots in per cent."""
        return 100 * self.slots_used / self.slots if self.slots else 0.0


@dataclass(frozen=True, slots=True)
class RefusedLine:
    """A version that the worker's machine refuses for now. ``name`` is empty for another team's."""

    digest: str
    name: str
    until: dt.datetime


@dataclass(frozen=True, slots=True)
class Card:
    """Everything a card shows. ``key`` is empty in the blank one that the script clones."""

    key: str
    title: str
    pool: str
    kind: str
    device: str
    note: str
    badge: Look
    stale: bool
    last_seen: str
    uptime: str
    figures: list[Figure]
    models: list[ModelLine]
    adapters: list[AdapterLine]
    adapters_in_all: int
    refused: list[RefusedLine]

    @property
    def heated(self) -> bool:
        """Whether power or temperature is known."""
        return self.figures[-1].value != UNKNOWN + " W / " + UNKNOWN + " °C"


@dataclass(frozen=True, slots=True)
class Summary:
    """The row of totals over workers that are not stale."""

    ready: str
    workers: str
    utilization: str
    requests: str
    tokens: str
    adapters: str


def make_card(row: WorkerRow, *, now: float, adapters: int | None = CARD_ADAPTERS) -> Card:
    """The card of ``row`` with at most ``adapters`` lines, most used first."""
    live = row.live
    lines = sorted(live.adapters or [] if live else [], key=lambda item: (-item.hits, item.slot))
    return Card(
        key=row.key,
        title=f"{row.machine}/{row.worker}",
        pool=row.pool,
        kind=KINDS.get(row.device.kind, row.device.kind),
        device=row.device.name,
        note=row.device.note or "",
        badge=look_of("stale" if row.stale else row.state),
        stale=row.stale,
        last_seen=age(row.last_seen_s),
        uptime=duration(live.uptime_s if live else None),
        figures=make_figures(live.figures if live else None, row.device, live.budget_bytes if live else None),
        models=[_model(model) for model in live.models] if live else [],
        adapters=[_adapter(item, now) for item in lines[:adapters]],
        adapters_in_all=len(lines),
        refused=[_refused(item) for item in live.refused if item.until > now] if live else [],
    )


def blank_card() -> Card:
    """A card of nothing, for the script to fill when a worker joins."""
    device = DeviceSample(id="", kind="", name="")
    return Card(
        key="", title="", pool="", kind="", device="", note="", badge=look_of("stale"), stale=True, last_seen=UNKNOWN,
        uptime=UNKNOWN, figures=make_figures(None, device), models=[], adapters=[], adapters_in_all=0, refused=[],
    )  # fmt: skip


def make_figures(now: payloads.Figures | None, device: DeviceSample, budget_bytes: int | None = None) -> list[Figure]:
    """The figures of a card, in order; all dashes without a live second."""
    used, total = (now.memory_used_bytes if now else None), device.memory_total_bytes
    reserved, mix = (now.reserved_bytes if now else None), (now.batch_adapters if now else None)
    power, warmth = (now.power_watts if now else None), (now.temperature_c if now else None)
    return [
        Figure("utilization", "Utilization", percent(now.utilization if now else None), "%",
               "Of the whole device, all programs on it together", _meter(now.utilization if now else None), True),
        Figure("busy", "Busy", percent(now.busy if now else None), "%",
               "Share of the last second in which this worker ran a batch", _meter(now.busy if now else None), True),
        Figure("memory", "Memory used", size_of(used, total), "",
               "Used on the device by all programs, and its total",
               _meter(used / total) if used is not None and total else None, True),
        Figure("reserved", "Reserved of budget", f"{size(reserved)} / {size(budget_bytes)}", "",
               "What the engine reserved for weights and slots, and the most it may",
               _meter(reserved / budget_bytes) if reserved is not None and budget_bytes else None, True),
        Figure("requests", "Requests", amount(now.requests_per_s if now else None), "/s"),
        Figure("tokens", "Tokens", amount(now.tokens_per_s if now else None), "/s"),
        Figure("rows", "Rows per batch", amount(now.batch_rows if now else None)),
        Figure("mix", "Adapters per batch", amount(mix), "", "Different adapters in one batch"),
        Figure("queue", "Queue wait p50 / p95",
               f"{amount(now.queue_p50_ms if now else None)} / {amount(now.queue_p95_ms if now else None)}", "ms",
               "From the gateway's publish to the start of the batch"),
        Figure("waiting", "Waiting", UNKNOWN if now is None else str(now.waiting_jobs), "jobs"),
        Figure("heat", "Power / temperature", f"{amount(power)} W / {amount(warmth)} °C"),
    ]  # fmt: skip


def memory_text(live: payloads.Worker | None) -> str:
    """Reserved, budget and measured memory as a sentence, the same as ``fleet.js`` writes."""
    now = live.figures if live else None
    return (
        f"{size(now.reserved_bytes if now else None)} reserved of a budget of"
        f" {size(live.budget_bytes if live else None)}; the process holds {size(now.process_bytes if now else None)}"
    )


def summarize(rows: FleetRows) -> Summary:
    """Totals over ``rows``; a stale worker counts as not there, and unknown stays unknown."""
    fresh = [row.live for row in rows.workers if row.live is not None and not row.stale]
    shares = [live.figures.utilization for live in fresh if live.figures.utilization is not None]
    return Summary(
        ready=str(sum(row.ready for row in rows.workers)),
        workers=str(len(rows.workers)),
        utilization=percent(sum(shares) / len(shares) if shares else None),
        requests=amount(_total([live.figures.requests_per_s for live in fresh])),
        tokens=amount(_total([live.figures.tokens_per_s for live in fresh])),
        adapters=str(len({item.digest for live in fresh for item in live.adapters or ()})) if fresh else UNKNOWN,
    )


def _meter(share: float | None) -> float | None:
    return None if share is None else round(min(1.0, max(0.0, share)) * 100, 1)


def _total(values: Sequence[float]) -> float | None:
    return sum(values) if values else None


def _model(model: ResidentModel) -> ModelLine:
    return ModelLine(model.id, model.slots_used, model.slots, size(model.size_bytes), model.pinned)


def _refused(item: payloads.Refusal) -> RefusedLine:
    return RefusedLine(item.digest, item.version or "", dt.datetime.fromtimestamp(item.until, dt.UTC))


def _adapter(item: payloads.Adapter, now: float) -> AdapterLine:
    return AdapterLine(
        digest=item.digest,
        name=item.version or "",
        tier=item.tier,
        slot=item.slot,
        size=size(item.size_bytes),
        hits=amount(item.hits),
        last_used=age(now - item.last_used),
        pinned=item.pinned,
    )
