"""What a failure of the device means: memory is short, or the device is gone."""

from __future__ import annotations

import torch


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that an allocation failed; torch has no class of its own for host memory."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def is_device_lost(error: BaseException) -> bool:
    """Whether the accelerator itself failed, which only a new process can mend."""
    return isinstance(error, torch.AcceleratorError) and not is_out_of_memory(error)
