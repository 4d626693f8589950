"""Starts a child in its own process group, feeds it one request, and kills the whole group when time is up."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO

import loras

MAX_REPLY_BYTES = 8 * 1024 * 1024
_STDERR_TAIL_BYTES = 2_000
_OVER_CPU = (-signal.SIGXCPU, -signal.SIGKILL)
# a child gets no secret of its parent; these are all it may need to find Python, temporary space and base models,
# and the mark by which the embedded stack ends what a killed parent left behind
_KEPT = (
    "PATH", "HOME", "TMPDIR", "LANG", "VIRTUAL_ENV", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "XDG_CACHE_HOME",
    "SHOAL_STACK_MARK",
)  # fmt: skip


class ChildEnding(StrEnum):
    """How a child ended: with an answer, without one, or killed when its time was up."""

    ANSWERED = "answered"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"


@dataclass(frozen=True, slots=True)
class ChildResult:
    """``reply`` is what it wrote on stdout, ``reason`` why there is none, in words for a log."""

    ending: ChildEnding
    reply: bytes
    reason: str


def run_child(module: str, arguments: list[str], request: bytes, *, timeout_s: float) -> ChildResult:
    """Run ``python -m module`` on one request. Never raises for what the child does."""
    command = [sys.executable, "-m", module, *arguments]
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        stdin.write(request)
        stdin.seek(0)
        # files, not pipes: a child that floods its output meets its own file limit, not this process's memory
        process = subprocess.Popen(
            command, stdin=stdin, stdout=out, stderr=err, env=_environment(), start_new_session=True
        )
        code = _wait(process, timeout_s)
        if code is None or (code in _OVER_CPU and not _size(out)):
            return ChildResult(ChildEnding.TIMED_OUT, b"", f"stopped after {timeout_s:g} s")
        if code != 0:
            return ChildResult(ChildEnding.CRASHED, b"", f"exit {code}: {_tail(err)}")
        if _size(out) > MAX_REPLY_BYTES:
            return ChildResult(ChildEnding.CRASHED, b"", f"a reply of {_size(out)} bytes")
        out.seek(0)
        return ChildResult(ChildEnding.ANSWERED, out.read(), "")


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    """The exit code, ``None`` when the child was killed because its time was up."""
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        # also what the child may have left behind, and the child itself when this process is interrupted
        _kill_group(process.pid)
        process.wait()


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    root = str(Path(next(iter(loras.__path__))).parent)
    return kept | {
        "PYTHONPATH": root,
        "PYTHONDONTWRITEBYTECODE": os.environ.get("PYTHONDONTWRITEBYTECODE", ""),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def _size(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


def _tail(file: IO[bytes]) -> str:
    size = _size(file)
    file.seek(max(0, size - _STDERR_TAIL_BYTES))
    return file.read().decode(errors="replace").strip()
