"""Out of memory: recognise it, and give back what can be spared."""

from __future__ import annotations

import gc

import torch

from wire.errors import Code, ErrorInfo
from workers.models.loaded import LoadedModel
from workers.packing.host import HostTier

OUT_OF_MEMORY = ErrorInfo(
    code=Code.OUT_OF_MEMORY,
    message="The device has not enough memory for this input, even alone.",
    hint="Shorten the input or use a device with more memory.",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that an allocation failed; torch has no class of its own for host memory."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def free_caches() -> None:
    """First step: garbage and the allocator's cache."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def evict_idle_adapters(model: LoadedModel, host: HostTier, in_use: set[str]) -> int:
    """Second step: adapters that no row of the batch uses; returns how many lost their slot."""
    evicted = 0
    while (victim := model.adapters.table.victim(in_use)) is not None:
        model.unload_adapter(victim)
        evicted += 1
    model.adapters.release_empty()
    host.clear()
    free_caches()
    return evicted
