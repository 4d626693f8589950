"""The out-of-memory ladder: free, evict, halve, and only then fail the job that cannot fit."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.artifacts import random_adapter
from wire.codec import decode
from wire.errors import Code
from wire.frames import Hello, Results
from wire.jobs import EmbeddingInputs, Job, Result, Task
from wire.registry import ModelRecord
from workers.channel import Channel
from workers.engine.answers import Answers
from workers.engine.meter import Meter
from workers.engine.outbox import Outbox
from workers.engine.passes import BatchRow, PassRunner
from workers.engine.shelf import Shelf, ShelvedModel
from workers.engine.works import WaitingRoom, Work
from workers.models import ModelOptions, load_model
from workers.packing.artifact import read_artifact
from workers.packing.host import HostTier


class Bench:
    """A pass runner on the tiny model, with the sidecar's end of its socket."""

    def __init__(self, record: ModelRecord) -> None:
        self.shelved = ShelvedModel(load_model(record, options=ModelOptions()), reload_s=1.0, pinned=True)
        self.room, self.host, self.meter = WaitingRoom(room_tokens=1000), HostTier(1 << 20), Meter()
        self.outbox, shelf = Outbox(), Shelf()
        self.answers = Answers(self.room, shelf, self.outbox, self.meter, "cpu")
        self.near, self.far = socket.socketpair()
        self.answers.connected(Channel(self.near), Hello(1, "cpu", "cpu", "cpu", 1, ["embeddings"]))
        self.runner = PassRunner(self.answers, self.meter, self.host)

    def work(self, name: str, texts: list[str]) -> Work:
        job = Job(name, Task.EMBEDDINGS, "default", self.shelved.model.record.id, "", EmbeddingInputs(texts), "team",
                  10, time.time() + 60, time.time(), "reply")  # fmt: skip
        work = Work(job, None, model=self.shelved.model)
        work.prepared = self.shelved.model.kind.prepare(EmbeddingInputs(texts))
        self.room.admit(work)
        return work

    def run(self, *works: Work) -> dict[str, Result]:
        rows = [
            BatchRow(work, number, ids)
            for work in works
            if work.prepared is not None
            for number, ids in enumerate(work.prepared.rows)
        ]
        self.runner.run_pass(self.shelved, rows)
        self.outbox.close()
        self.outbox.run()
        self.outbox.detach()
        with self.far.makefile("rb") as stream:
            data = stream.read()
        found: dict[str, Result] = {}
        while data:
            length = int.from_bytes(data[:4], "big")
            if b"results" in data[4 : 4 + 32]:
                for result in decode(data[4 : 4 + length], Results).results:
                    found[result.job] = result
            data = data[4 + length :]
        return found


@pytest.fixture
def bench(tiny_record: ModelRecord) -> Iterator[Bench]:
    made = Bench(tiny_record)
    yield made
    made.near.close()
    made.far.close()


def limit_memory(bench: Bench, *, most_rows: int, most_tokens: int, adapters: int = 99) -> None:
    """Make the device fail above so many rows, tokens per row, or resident adapters."""
    kind = bench.shelved.model.kind
    forward = kind.forward

    def limited(rows: Sequence[list[int]]) -> Tensor:
        resident = len(bench.shelved.model.adapters.residents())
        if len(rows) > most_rows or max(map(len, rows)) > most_tokens or resident > adapters:
            raise torch.OutOfMemoryError("out of memory")
        return forward(rows)

    kind.forward = limited  # type: ignore[method-assign]


def test_a_batch_is_halved_until_it_fits_and_only_the_job_too_large_alone_fails(bench: Bench) -> None:
    works = [bench.work(f"job{number}", ["a small shoal", "fish"]) for number in range(4)]
    large = bench.work("large", ["storm " * 30])
    expected = bench.shelved.model.embed(["a small shoal", "fish"], [None, None])
    limit_memory(bench, most_rows=3, most_tokens=20)
    found = bench.run(*works, large)
    assert found["large"].error is not None
    assert found["large"].error.code is Code.OUT_OF_MEMORY
    for work in works:
        outputs = found[work.job.id].outputs
        assert outputs is not None
        np.testing.assert_allclose(np.frombuffer(outputs.vectors, "<f4").reshape(2, -1), expected, atol=1e-5)


def test_idle_adapters_give_their_memory_before_a_batch_is_halved(bench: Bench, tmp_path: Path) -> None:
    model = bench.shelved.model
    idle = random_adapter(model.adapters.shapes, {"encoder.layer.0.attention.self.query": 4}, seed=1)
    model.load_adapter(idle.digest, read_artifact(idle.write_canonical(tmp_path)))
    limit_memory(bench, most_rows=99, most_tokens=99, adapters=0)
    found = bench.run(bench.work("job", ["fish", "storm"]))
    assert found["job"].error is None
    assert found["job"].batch_rows == 2
    assert model.adapters.size_bytes == 0


def test_any_other_failure_of_the_device_ends_the_stage(bench: Bench) -> None:
    def broken(rows: Sequence[list[int]]) -> Tensor:
        raise RuntimeError("device lost")

    bench.shelved.model.kind.forward = broken  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="device lost"):
        bench.run(bench.work("job", ["fish"]))
    bench.outbox.detach()
