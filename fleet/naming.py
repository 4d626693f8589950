"""Which of a viewer's versions a digest is. Another team's names do not exist for the viewer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache

from loras.models import Version

FRESH_FOR_S = 30.0
MAX_DIGESTS = 20_000


@dataclass(slots=True)
class NameBook:
    """Process-wide cache: digest → {team: ``team/adapter@n``}. The same content may be a version of several teams."""

    _names: dict[str, dict[str, str]] = field(default_factory=dict)
    _read_at: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def missing(self, digests: Iterable[str]) -> set[str]:
        """Digests that must be read from the database before :meth:`name` knows them."""
        limit = time.monotonic() - FRESH_FOR_S
        return {digest for digest in digests if self._read_at.get(digest, float("-inf")) < limit}

    def learn(self, digests: set[str]) -> None:
        """Read ``digests`` from the database in one query; unknown ones are remembered as such."""
        if not digests:
            return
        found: dict[str, dict[str, str]] = {digest: {} for digest in digests}
        rows = Version.objects.filter(digest__in=digests).order_by("number")
        for digest, team, adapter, number in rows.values_list(
            "digest", "adapter__team__name", "adapter__name", "number"
        ):
            found[digest][team] = f"{team}/{adapter}@{number}"
        with self._lock:
            if len(self._names) + len(found) > MAX_DIGESTS:
                self._names.clear()
                self._read_at.clear()
            self._names |= found
            self._read_at |= dict.fromkeys(found, time.monotonic())

    def name(self, digest: str, teams: frozenset[str]) -> str | None:
        """The version's name in one of ``teams``, or ``None``."""
        names = self._names.get(digest, {})
        return next((names[team] for team in sorted(teams) if team in names), None)


@cache
def name_book() -> NameBook:
    """The book of this process."""
    return NameBook()
