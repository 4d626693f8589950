"""First passes of a loaded model: the device's set-up, a start for the cost model, and memory as measured."""

from __future__ import annotations

import time

from workers.engine.memory import DeviceMemory
from workers.engine.shelf import ShelvedModel

_PASSES = ((8, 1), (8, 1), (64, 4), (8, 1), (16, 32))
"""(tokens, rows): the first sets up the device's thread pools, the others give the cost model a start."""
_MEASURED = (32, 16)


def warm_up(shelved: ShelvedModel, memory: DeviceMemory, *, batch_tokens: int, batch_s: float) -> None:
    """Run them. Batches are bounded by ``batch_tokens`` and by ``batch_s``. Raises what the passes raise."""
    model = shelved.model

    def run(tokens: int, rows: int) -> int:
        length = min(tokens, model.kind.max_tokens)
        model.forward([model.kind.sample(length)] * rows, [None] * rows)
        return length * rows

    for number, (tokens, rows) in enumerate(_PASSES):
        start = time.perf_counter()
        ran = run(tokens, rows)
        if number:
            shelved.cost.update(tokens=ran, adapters=0, seconds=time.perf_counter() - start)
    with memory.measure() as peak:
        ran = run(*_MEASURED)
    if peak.size_bytes is not None:
        # activations grow with the tokens of a batch
        tokens = min(batch_tokens, max(ran, shelved.cost.cost.tokens_within(batch_s)))
        shelved.activation_bytes = peak.size_bytes * tokens // ran
