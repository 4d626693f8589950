"""Out of memory: give back what can be spared."""

from __future__ import annotations

import gc
from collections.abc import Collection

import torch

from wire.errors import Code, ErrorInfo
from workers.models.loaded import LoadedModel
from workers.packing.host import HostTier

OUT_OF_MEMORY = ErrorInfo(
    code=Code.OUT_OF_MEMORY,
    message="The device has not enough memory for this input, even alone.",
    hint="Shorten the input or use a device with more memory.",
)


def free_caches() -> None:
    """First step: garbage and the allocator's cache."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def evict_idle_adapters(model: LoadedModel, host: HostTier, in_use: Collection[str]) -> int:
    """Second step: adapters outside of ``in_use``, which names those of the whole batch: passes that come later find
    theirs in place. Returns how many lost their slot."""
    evicted = 0
    while (victim := model.adapters.table.victim(in_use)) is not None:
        model.unload_adapter(victim)
        evicted += 1
    model.adapters.compact()
    host.clear()
    free_caches()
    return evicted
