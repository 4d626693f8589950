"""What the adapter pages show, as typed rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from loras.list_order import DEFAULT
from loras.metrics.glance import Glance
from loras.states import State
from wire.errors import Code, ShoalError
from wire.names import LIVE
from wire.reports import AdapterFacts, Outcome, Question, Report, Row

WAITING = frozenset({State.RECEIVING, State.VALIDATING})
PUBLISHED = frozenset({State.READY, State.RETIRED})


@dataclass(frozen=True, slots=True)
class AliasRow:
    """One alias; ``split`` maps version numbers to weights."""

    name: str
    split: dict[int, int]
    moved_at: datetime

    @classmethod
    def of(cls, name: str, split: Mapping[str, int], moved_at: datetime) -> AliasRow:
        """From the stored form, whose version numbers are text."""
        return cls(name, {int(number): int(weight) for number, weight in split.items()}, moved_at)

    @property
    def heaviest(self) -> int:
        """The version with the largest weight, the newer of equals."""
        return max(self.split, key=lambda number: (self.split[number], number))

    @property
    def text(self) -> str:
        """``v3``, or ``v3 95 % · v4 5 %`` for a canary."""
        if len(self.split) == 1:
            return f"v{next(iter(self.split))}"
        total = sum(self.split.values()) or 1
        return " · ".join(f"v{number} {weight * 100 / total:g} %" for number, weight in sorted(self.split.items()))


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One version as every tab shows it. ``claimed_at`` is when its running validation began."""

    number: int
    state: State
    digest: str
    mode: str
    mode_reason: str
    size_bytes: int
    message: str
    created_by: str
    created_at: datetime
    ready_at: datetime | None
    duplicate_of: int | None
    report: Report | None
    aliases: list[str]

    @property
    def shown_state(self) -> str:
        """The state, or ``duplicate`` for a version that only points to an earlier one."""
        return "duplicate" if self.duplicate_of is not None else self.state.value

    @property
    def facts(self) -> AdapterFacts | None:
        return self.report.facts if self.report is not None and self.report.digest else None

    @property
    def question(self) -> Question | None:
        return self.report.question if self.report is not None and self.state is State.NEEDS_INPUT else None

    @property
    def problems(self) -> list[Row]:
        """Rows that refused the upload."""
        return [row for row in self.report.rows if row.outcome is Outcome.FAIL] if self.report is not None else []

    @property
    def waiting(self) -> bool:
        return self.state in WAITING

    @property
    def unsettled(self) -> bool:
        """Whether a person should be told about it on every tab."""
        return self.waiting or self.state in {State.NEEDS_INPUT, State.REJECTED}


@dataclass(frozen=True, slots=True)
class AdapterPage:
    """Header of an adapter and all its versions, newest first. ``shown`` is what the header describes: the live
    version, else the newest published one, else the newest."""

    team: str
    name: str
    base_model: str
    created_by: str
    created_at: datetime
    updated_at: datetime
    aliases: list[AliasRow]
    versions: list[VersionRow]
    kind: str
    usage: Glance
    may_push: bool

    @property
    def full_name(self) -> str:
        return f"{self.team}/{self.name}"

    @property
    def newest(self) -> VersionRow | None:
        return self.versions[0] if self.versions else None

    @property
    def shown(self) -> VersionRow | None:
        live = self.alias(LIVE)
        if live is not None:
            return self.version(live.heaviest)
        return next((row for row in self.versions if row.state in PUBLISHED), self.newest)

    @property
    def waiting(self) -> bool:
        return any(row.waiting for row in self.versions)

    def alias(self, name: str) -> AliasRow | None:
        return next((alias for alias in self.aliases if alias.name == name), None)

    def version(self, number: int) -> VersionRow:
        """The version of that number. Raises ``ShoalError(VERSION_NOT_FOUND)``."""
        for row in self.versions:
            if row.number == number:
                return row
        raise ShoalError(Code.VERSION_NOT_FOUND, f"{self.full_name} has no version {number}.")


@dataclass(frozen=True, slots=True)
class AdapterRow:
    """One adapter of the list. ``state`` and ``size_bytes`` are the newest version's, ``live`` where live points."""

    team: str
    name: str
    base_model: str
    state: str
    live: str
    versions: int
    size_bytes: int | None
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class ListPage:
    """A page of the list: rows ``first`` to ``last`` of ``total``, and the numbers of its neighbours."""

    rows: list[AdapterRow]
    total: int
    first: int
    last: int
    previous: int | None
    next: int | None


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event of an adapter's feed; ``icon`` is a name of the sprite, ``tone`` its colour class."""

    kind: str
    icon: str
    tone: str
    message: str
    actor: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Difference:
    """One line of the comparison of two versions."""

    what: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class ListFilter:
    """What the list is narrowed to, empty means all; and the order it is shown in."""

    search: str = ""
    state: str = ""
    base_model: str = ""
    order: str = DEFAULT

    @property
    def active(self) -> bool:
        return bool(self.search or self.state or self.base_model)


def differences(before: VersionRow | None, after: VersionRow) -> list[Difference]:
    """What a person compares before an alias moves."""
    return [Difference(what, "" if before is None else read(before), read(after)) for what, read in _COMPARED.items()]


_COMPARED: dict[str, Callable[[VersionRow], str]] = {
    "Rank": lambda row: str(row.facts.rank) if row.facts else "",
    "Alpha": lambda row: f"{row.facts.alpha:g}" if row.facts else "",
    "Targets": lambda row: ", ".join(row.facts.targets) if row.facts else "",
    "Serving": lambda row: row.mode,
    "Digest": lambda row: row.digest[:12],
    "Uploaded": lambda row: f"{row.created_at:%Y-%m-%d %H:%M}" + (f" by {row.created_by}" if row.created_by else ""),
    "Message": lambda row: row.message,
}
