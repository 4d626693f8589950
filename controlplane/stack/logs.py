"""One terminal for many processes: whole lines, fixed-width prefixes, colour only where a person looks."""

from __future__ import annotations

import os
import queue
import threading
from collections import defaultdict, deque
from dataclasses import dataclass, field

MAX_LINE_BYTES = 16 * 1024
RECALLED_LINES = 30
_COLOURS = (36, 32, 35, 34, 33, 96, 92, 95, 94, 93)


@dataclass(slots=True)
class LineSplitter:
    """Cuts a byte stream into lines; a line longer than ``MAX_LINE_BYTES`` is cut, blank lines are left out."""

    _rest: bytes = field(default=b"")

    def feed(self, data: bytes) -> list[str]:
        """The lines that ``data`` completes."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        while len(self._rest) > MAX_LINE_BYTES:
            whole.append(self._rest[:MAX_LINE_BYTES])
            self._rest = self._rest[MAX_LINE_BYTES:]
        return [line for raw in whole if (line := _readable(raw))]

    def close(self) -> list[str]:
        """What is left when the stream ends without a newline."""
        line, self._rest = _readable(self._rest), b""
        return [line] if line else []


def _readable(raw: bytes) -> str:
    # a progress bar rewrites its line with carriage returns: its last state is what counts
    return raw.rstrip().rsplit(b"\r", 1)[-1].decode(errors="replace").rstrip()


class LinePrinter:
    """Writes lines from its own thread, so that a stopped terminal (Ctrl-S, a full pipe) never stalls a child.

    The queue is bounded: what does not fit is dropped and counted, and the count is printed once there is room.
    ``quiet`` keeps a part's lines back until :meth:`recall` asks for its last ones.
    """

    def __init__(
        self,
        *,
        fd: int = 1,
        width: int = 12,
        colour: bool | None = None,
        max_lines: int = 10_000,
        quiet: bool = False,
    ) -> None:
        self._fd = fd
        self._quiet = quiet
        self._last: defaultdict[str, deque[str]] = defaultdict(lambda: deque(maxlen=RECALLED_LINES))
        self._width = width
        self._colour = (os.isatty(fd) and "NO_COLOR" not in os.environ) if colour is None else colour
        self._lines: queue.Queue[str | None] = queue.Queue(max_lines)
        self._dropped = 0
        self._colours: dict[str, int] = {}
        self._thread = threading.Thread(target=self._write_lines, name="lines", daemon=True)
        self._thread.start()

    def line(self, part: str, text: str, *, loud: bool = False) -> None:
        """Print one line of ``part``; ``loud`` lines are bold on a terminal and printed also when quiet."""
        if self._quiet and not loud:
            self._last[part].append(text)
        else:
            self._put(self._format(part, text, loud=loud))

    def recall(self, part: str) -> None:
        """Print the lines of ``part`` that were kept back: it died, and they say why."""
        for text in self._last.pop(part, ()):
            self._put(self._format(part, text, loud=False))

    def block(self, text: str) -> None:
        """Print ``text`` as it is, without a prefix."""
        self._put(text)

    def close(self, *, timeout_s: float = 2.0) -> None:
        """Write what is queued, for at most ``timeout_s`` when nobody reads."""
        try:
            self._lines.put(None, timeout=timeout_s)
        except queue.Full:
            return
        self._thread.join(timeout_s)

    def _format(self, part: str, text: str, *, loud: bool) -> str:
        prefix = f"{part[: self._width]:<{self._width}} │"
        if not self._colour:
            return f"{prefix} {text}"
        colour = self._colours.setdefault(part, _COLOURS[len(self._colours) % len(_COLOURS)])
        return f"\x1b[{colour}m{prefix}\x1b[0m " + (f"\x1b[1m{text}\x1b[0m" if loud else text)

    def _put(self, text: str) -> None:
        try:
            if self._dropped:
                self._lines.put_nowait(f"{'stack':<{self._width}} │ {self._dropped} lines dropped: nobody read them")
                self._dropped = 0
            self._lines.put_nowait(text)
        except queue.Full:
            self._dropped += 1

    def _write_lines(self) -> None:
        while (text := self._lines.get()) is not None:
            data = f"{text}\n".encode()
            try:
                while data:
                    data = data[os.write(self._fd, data) :]
            except OSError:
                # the terminal or the reader of the pipe is gone; the stack serves on without its log
                continue
