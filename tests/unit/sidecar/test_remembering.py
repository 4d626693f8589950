"""What the sidecar keeps: answers within bytes, drained workers over restarts, the server's clock, troubles once."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from sidecar.broker.clock import ServerClock
from sidecar.dispatch.drained import DrainedWorkers
from sidecar.queueing.memory import TimedMemory
from wire.jobs import EmbeddingInputs, Job, Task

JOB = Job(
    id="j", task=Task.EMBEDDINGS, pool="p", model="m", model_digest="d", inputs=EmbeddingInputs(texts=[]), tenant="t",
    token_estimate=1, deadline=1030.0, published=1000.0, reply="r",
)  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 60)), max_size=40))
def test_kept_bytes_stay_within_the_bound_and_the_newest_stays(puts: list[tuple[str, int]]) -> None:
    memory: TimedMemory[int] = TimedMemory(10.0, 4, 100)
    for moment, (key, size) in enumerate(puts):
        memory.put(key, size, moment * 0.1, size)
        assert memory.get(key, moment * 0.1) == size
        assert len(memory) <= 4
        kept = sum(memory.since(0.0))
        assert memory.bytes == kept <= 100
    assert memory.get("a", 1e6) is None
    assert memory.bytes == 0


def test_drained_workers_are_known_to_the_next_process(tmp_path: Path) -> None:
    path = tmp_path / "sidecar.sock.drained"
    drained = DrainedWorkers(path)
    drained.set("gpu-0", drained=True)
    drained.set("gpu-1", drained=True)
    drained.set("gpu-0", drained=False)
    again = DrainedWorkers(path)
    assert "gpu-1" in again
    assert "gpu-0" not in again
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff"])
def test_a_file_of_drained_workers_that_is_none_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "drained"
    path.write_bytes(content)
    with capture_logs() as logs:
        assert "w" not in DrainedWorkers(path)
    assert [(one["log_level"], one["path"]) for one in logs] == [("error", str(path))]


def test_a_clock_far_from_the_servers_is_told_once_and_corrected() -> None:
    clock = ServerClock()
    with capture_logs() as logs:
        for _ in range(3):
            clock.measure("1970-01-01T00:16:40.123456789Z", 959.9, 960.1)
    assert clock.offset_s == pytest.approx(40.123456, abs=1e-3)
    assert [one["log_level"] for one in logs] == ["error"]
    local = clock.localized(JOB)
    assert local.deadline == pytest.approx(1030 - clock.offset_s)
    assert local.published == pytest.approx(1000 - clock.offset_s)
    with capture_logs() as logs:
        clock.measure("1970-01-01T00:16:40Z", 999.99, 1000.01)
    assert [one["log_level"] for one in logs] == ["info"]
    assert clock.localized(JOB) is JOB


def test_an_answer_that_took_long_says_nothing_about_the_time() -> None:
    clock = ServerClock()
    clock.measure("1970-01-01T00:16:40Z", 0.0, 5.0)
    clock.measure("", 0.0, 0.1)
    assert clock.offset_s == 0.0
