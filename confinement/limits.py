"""Bounds on memory, processor time, file size and open files of the calling process."""

from __future__ import annotations

import argparse
import resource
from dataclasses import dataclass

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """``memory_bytes`` bounds the address space (RLIMIT_AS), ``file_bytes`` any file that is written (RLIMIT_FSIZE),
    ``cpu_s`` processor time. They hold for each process that inherits them, not for all together."""

    memory_bytes: int = 4 * GIB
    cpu_s: int = 60
    file_bytes: int = 8 * GIB
    open_files: int = 256

    def apply(self) -> None:
        """Bound the calling process and its later children for good; a lower limit that holds already stays."""
        for kind, amount in (
            (resource.RLIMIT_AS, self.memory_bytes),
            (resource.RLIMIT_CPU, self.cpu_s),
            (resource.RLIMIT_FSIZE, self.file_bytes),
            (resource.RLIMIT_NOFILE, self.open_files),
            (resource.RLIMIT_CORE, 0),
        ):
            _, hard = resource.getrlimit(kind)
            allowed = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
            resource.setrlimit(kind, (allowed, allowed))

    def arguments(self) -> list[str]:
        """These limits as a child's command-line arguments, read by :func:`limits_of`."""
        return [
            f"--memory-bytes={self.memory_bytes}",
            f"--cpu-s={self.cpu_s}",
            f"--file-bytes={self.file_bytes}",
            f"--open-files={self.open_files}",
        ]


def add_limits(parser: argparse.ArgumentParser, defaults: ProcessLimits = ProcessLimits()) -> None:
    """Options of ``parser`` for each limit."""
    parser.add_argument("--memory-bytes", type=int, default=defaults.memory_bytes, help="address space")
    parser.add_argument("--cpu-s", type=int, default=defaults.cpu_s, help="processor time in seconds")
    parser.add_argument("--file-bytes", type=int, default=defaults.file_bytes, help="size of a written file")
    parser.add_argument("--open-files", type=int, default=defaults.open_files)


def limits_of(options: argparse.Namespace) -> ProcessLimits:
    """The limits that the command line named."""
    return ProcessLimits(
        memory_bytes=options.memory_bytes,
        cpu_s=options.cpu_s,
        file_bytes=options.file_bytes,
        open_files=options.open_files,
    )
