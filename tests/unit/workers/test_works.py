"""Credit: no job, however large, shuts the others out."""

from __future__ import annotations

import time

import pytest

from wire.jobs import EmbeddingInputs, Job, Task
from workers.engine.works import WaitingRoom, Work
from workers.models.protocol import PreparedInputs, Row

ROOM = 32_768


def work(name: str, tokens: int) -> Work:
    job = Job(name, Task.EMBEDDINGS, "default", "model", "", EmbeddingInputs(["a"]), "team", tokens,
              time.time() + 60, time.time(), "reply")  # fmt: skip
    return Work(job, None)


def room_left(room: WaitingRoom, received: int) -> int:
    """Tokens the sidecar may still send."""
    pull = room.pull(models=[], adapters=[])
    return pull.limit_tokens - received if pull is not None else 0


@pytest.mark.parametrize("tokenized", [False, True])
def test_one_huge_job_leaves_room_for_others(tokenized: bool) -> None:
    room = WaitingRoom(room_tokens=ROOM)
    huge = work("huge", 2048 * 256)
    room.admit(huge)
    if tokenized:
        huge.prepared = PreparedInputs(rows=[Row([1] * 256, Task.EMBEDDINGS)] * 2048, tokens=2048 * 256)
    assert room_left(room, 2048 * 256) >= ROOM // 2


def test_huge_jobs_that_run_leave_room_and_a_flood_of_them_ends_it() -> None:
    room = WaitingRoom(room_tokens=ROOM)
    received = 0
    for number in range(20):
        huge = work(str(number), 2048 * 256)
        room.admit(huge)
        huge.started = time.time()
        received += 2048 * 256
        left = room_left(room, received)
        if number < 8:
            assert left > 0, f"{number + 1} huge jobs shut everyone out"
    assert left <= 0


def test_small_jobs_fill_the_room_to_the_token() -> None:
    room = WaitingRoom(room_tokens=1000)
    for number in range(10):
        room.admit(work(str(number), 90))
    assert room_left(room, 900) == 100
