"""Which dtype a model computes in: the one asked for, or the one that is fast on the device and close to float32."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import structlog
import torch
from torch import Tensor, nn
from torch.nn import functional

log = structlog.get_logger("worker.dtype")

COSINE_BOUND = 0.999
"""A dtype is taken by itself only while each measured output keeps this cosine to its float32 twin."""
LEAST_SPEEDUP = 1.2
"""… and only when passes become so much faster that noise cannot be the reason."""
AUTO = "auto"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_ROUNDS = 3

Passes = Callable[[], Tensor]
"""A few real passes over a model: their outputs as rows, in any dtype."""


def settle_dtype(
    module: nn.Module, wanted: str, passes: Passes, *, name: str, clock: Callable[[], float] = time.perf_counter
) -> torch.dtype:
    """Bring the parameters of a float32 ``module`` to the wanted dtype, or with ``auto`` to the better one; returns it.

    Buffers stay as they are: rounded rotary frequencies would turn far positions by whole angles.
    """
    if wanted != AUTO:
        dtype = DTYPES[wanted]
        _Versions(module, dtype).take(dtype)
        return dtype
    candidate = _half_precision(next(module.parameters()).device)
    versions = _Versions(module, candidate)
    seconds, outputs = _measure(versions, passes, candidate, clock)
    cosine = _least_cosine(outputs[torch.float32], outputs[candidate])
    speedup = seconds[torch.float32] / seconds[candidate]
    taken = candidate if cosine >= COSINE_BOUND and speedup >= LEAST_SPEEDUP else torch.float32
    versions.take(taken)
    log.info(
        "dtype chosen",
        model=name,
        dtype=str(taken).removeprefix("torch."),
        measured=str(candidate).removeprefix("torch."),
        speedup=round(speedup, 2),
        cosine=round(cosine, 5),
    )
    return taken


class _Versions:
    """A module's parameters in float32 and in another dtype; changing over moves no numbers."""

    def __init__(self, module: nn.Module, dtype: torch.dtype) -> None:
        self._parameters = list(module.parameters())
        self._data = {
            torch.float32: [parameter.data for parameter in self._parameters],
            dtype: [parameter.data.to(dtype) for parameter in self._parameters],
        }

    def take(self, dtype: torch.dtype) -> None:
        for parameter, data in zip(self._parameters, self._data[dtype], strict=True):
            parameter.data = data


def _measure(
    versions: _Versions, passes: Passes, candidate: torch.dtype, clock: Callable[[], float]
) -> tuple[dict[torch.dtype, float], dict[torch.dtype, Tensor]]:
    """The shortest time and the outputs of both dtypes, in turns, so that a busy moment meets both."""
    seconds = {torch.float32: math.inf, candidate: math.inf}
    outputs = {}
    with torch.inference_mode():
        for _ in range(_ROUNDS):
            for dtype in seconds:
                versions.take(dtype)
                start = clock()
                outputs[dtype] = passes().to(device="cpu", dtype=torch.float32)
                seconds[dtype] = min(seconds[dtype], clock() - start)
    return seconds, outputs


def _least_cosine(exact: Tensor, rounded: Tensor) -> float:
    """The smallest cosine of a pair of rows; below any bound when a row is not finite."""
    if not bool(rounded.isfinite().all()):
        return -1.0
    return float(functional.cosine_similarity(exact, rounded, dim=-1).min())


def _half_precision(device: torch.device) -> torch.dtype:
    if device.type == "cuda" and not torch.cuda.is_bf16_supported():
        return torch.float16
    return torch.bfloat16
