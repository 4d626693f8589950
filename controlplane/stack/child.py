"""One life of one child process: start, log lines, end of its whole process group."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from controlplane.stack.guard import MARK, find_marked, send_signal
from controlplane.stack.logs import LineSplitter
from controlplane.stack.parts import Part

_PR_SET_PDEATHSIG = 1
# resolved before any fork: nothing may be imported or looked up between fork and exec
_LIBC = ctypes.CDLL(None, use_errno=True)
_READ_BYTES = 64 * 1024


@dataclass(slots=True)
class Child:
    """A running process of ``part``; its lines go to ``on_line``."""

    part: Part
    process: asyncio.subprocess.Process
    mark: str
    started_at: float
    _output_fd: int
    _on_line: Callable[[str], None]
    _born: float = field(default_factory=time.monotonic)
    _splitter: LineSplitter = field(default_factory=LineSplitter)

    @classmethod
    async def start(cls, part: Part, *, mark: str, on_line: Callable[[str], None]) -> Child:
        """Start ``part`` in its own session, marked with ``mark``; raises ``OSError`` when it cannot be executed."""
        read_fd, write_fd = os.pipe2(os.O_CLOEXEC)
        own_mark = f"{mark}/{part.name}/"
        started_at = time.time()
        try:
            process = await asyncio.create_subprocess_exec(
                *part.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=write_fd,
                stderr=write_fd,
                env={**part.environment, MARK: own_mark},
                start_new_session=True,
                preexec_fn=_before_exec(part.niceness, os.getpid()),
            )
        except BaseException:
            os.close(read_fd)
            raise
        finally:
            os.close(write_fd)
        os.set_blocking(read_fd, False)
        child = cls(part, process, own_mark, started_at, read_fd, on_line)
        asyncio.get_running_loop().add_reader(read_fd, child._read_output)
        return child

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def lived_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._born

    async def wait(self) -> int:
        """Exit status (negative: the signal that ended it) once the process and all it left behind are gone."""
        status = await self.process.wait()
        self.kill_left_behind()
        self._close_output()
        return status

    async def stop(self) -> bool:
        """TERM, then KILL after the part's grace; returns whether KILL was needed."""
        self.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(self.part.grace_s):
                await self.process.wait()
        except TimeoutError:
            self.signal(signal.SIGKILL)
            await self.process.wait()
            return True
        return False

    def signal(self, number: int) -> None:
        """Signal the process; KILL goes to its whole group."""
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(self.pid, number)
            else:
                self.process.send_signal(number)

    def kill_left_behind(self) -> None:
        """KILL what the process started and did not end, also outside its process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        send_signal(find_marked(self.mark), signal.SIGKILL)

    def _read_output(self) -> None:
        try:
            data = os.read(self._output_fd, _READ_BYTES)
        except BlockingIOError:
            return
        for line in self._splitter.feed(data):
            self._on_line(line)
        if not data:
            self._close_output()

    def _close_output(self) -> None:
        if self._output_fd < 0:
            return
        asyncio.get_running_loop().remove_reader(self._output_fd)
        # the last words of a process that died are still in the pipe
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._output_fd, _READ_BYTES):
                for line in self._splitter.feed(data):
                    self._on_line(line)
        for line in self._splitter.close():
            self._on_line(line)
        os.close(self._output_fd)
        self._output_fd = -1


def _before_exec(niceness: int, parent: int) -> Callable[[], None]:
    def prepare() -> None:
        # the kernel ends the child when the supervisor dies, even by SIGKILL
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
        if niceness:
            os.nice(niceness)

    return prepare


def describe_exit(status: int) -> str:
    """An exit status in words."""
    if status >= 0:
        return f"ended with status {status}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-status).name}"
    return f"was ended by signal {-status}"
