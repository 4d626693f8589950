"""Stop strings over a text that arrives in pieces: nothing of one is ever sent, whatever the token borders."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Holds back the end of a text while it may be the beginning of a stop string."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""

    def feed(self, piece: str) -> tuple[str, bool]:
        """Text that may be sent now, and whether a stop string ended it."""
        self._held += piece
        places = [place for stop in self._stops if (place := self._held.find(stop)) >= 0]
        if places:
            text, self._held = self._held[: min(places)], ""
            return text, True
        keep = max((_overlap(self._held, stop) for stop in self._stops), default=0)
        cut = len(self._held) - keep
        text, self._held = self._held[:cut], self._held[cut:]
        return text, False

    def flush(self) -> str:
        """What was held back, once the text ended without a stop string."""
        text, self._held = self._held, ""
        return text


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that ``stop`` begins with."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
