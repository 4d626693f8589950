"""Memory of the device: what is free, what a pass takes, and what can be given back."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from wire.errors import Code, ErrorInfo
from wire.telemetry import Eviction
from workers.models.loaded import LoadedModel
from workers.packing.host import HostTier

OUT_OF_MEMORY = ErrorInfo(
    code=Code.OUT_OF_MEMORY,
    message="The device has not enough memory for this input, even alone.",
    hint="Shorten the input or use a device with more memory.",
)
_CGROUP = Path("/sys/fs/cgroup")
_PROCESS = Path("/proc/self")
_RESET_PEAK = "5"
"""What ``/proc/self/clear_refs`` takes to set the peak of the resident set to its present size (proc(5))."""


@dataclass(slots=True)
class Peak:
    """The most memory that a block held beyond what it began with; ``None`` where nobody can tell."""

    size_bytes: int | None = None


class DeviceMemory:
    """Measures one device: the resident set of this process on a CPU, torch's own counts on a GPU."""

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)

    @property
    def is_host(self) -> bool:
        """Whether the device's memory is the host's."""
        return self._device.type == "cpu"

    def free_bytes(self) -> int:
        """What could be taken now, in a container within its limit too."""
        if not self.is_host:
            free, _ = torch.cuda.mem_get_info(self._device)
            cached = torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device)
            return int(free + cached)
        free = psutil.virtual_memory().available
        limit, used = _cgroup_number("memory.max"), _cgroup_number("memory.current")
        if limit is None or used is None:
            return int(free)
        return min(int(free), max(0, limit - used + _cgroup_file_cache()))

    @contextlib.contextmanager
    def measure(self) -> Iterator[Peak]:
        """Yields a :class:`Peak` that is known after the block. Other threads of the process count in it."""
        found = Peak()
        if not self.is_host:
            torch.cuda.synchronize(self._device)
            before = torch.cuda.memory_allocated(self._device)
            torch.cuda.reset_peak_memory_stats(self._device)
            yield found
            found.size_bytes = max(0, torch.cuda.max_memory_allocated(self._device) - before)
            return
        # what the heap kept of earlier passes would be used again and not be seen to grow
        return_freed()
        try:
            (_PROCESS / "clear_refs").write_text(_RESET_PEAK)
            before = _status_bytes("VmRSS")
        except OSError:  # not allowed in this sandbox: unknown, and never taken for 0
            yield found
            return
        yield found
        found.size_bytes = max(0, _status_bytes("VmHWM") - before)


def return_freed() -> None:
    """Give what torch freed back to the system: the caching allocator of a GPU, the heap of the process."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    with contextlib.suppress(OSError, AttributeError):  # no glibc, no trimming
        ctypes.CDLL(None).malloc_trim(0)


def free_caches() -> None:
    """First step when memory is short: garbage and the allocators' caches."""
    gc.collect()
    return_freed()


def evict_idle_adapters(model: LoadedModel, host: HostTier, in_use: Collection[str]) -> list[Eviction]:
    """Second step: adapters outside of ``in_use``, which names those of the whole batch: passes that come later find
    theirs in place. Returns those that lost their slot.
    """
    evicted: list[Eviction] = []
    while (victim := model.adapters.table.victim(in_use)) is not None:
        model.unload_adapter(victim)
        reason = f"{model.record.id} was short of memory in a pass; no row of that batch used it."
        evicted.append(Eviction("adapter", victim, reason, time.time()))
    model.adapters.compact()
    host.clear()
    free_caches()
    return evicted


def _status_bytes(field: str) -> int:
    for line in (_PROCESS / "status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {field} in {_PROCESS}/status")


def _cgroup_number(name: str) -> int | None:
    try:
        text = (_CGROUP / name).read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _cgroup_file_cache() -> int:
    """Pages that the kernel drops before it calls memory short."""
    try:
        lines = (_CGROUP / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("inactive_file ")), 0)
