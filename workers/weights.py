"""Memory that a model's weights take."""

from __future__ import annotations

from torch import nn


def weight_bytes(module: nn.Module) -> int:
    """Bytes of all parameters and buffers, each piece of memory counted once."""
    storages = {}
    for tensor in (*module.parameters(), *module.buffers()):
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())
