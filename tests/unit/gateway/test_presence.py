"""Silence of workers and silence of a connection are told apart."""

from __future__ import annotations

import asyncio
import time

import pytest

from gateway.presence import LISTEN_S, MACHINE_STALE_S, PresenceBoard
from tests.integration.gateway.stand import BASE_RECORD
from wire.errors import Code, ShoalError
from wire.jobs import Presence


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_after_a_reconnect_a_model_seen_before_has_its_whole_time_again(clock: list[float]) -> None:
    board = PresenceBoard(15.0)
    board.note(Presence(machine="m", pool=BASE_RECORD.pool, models=[BASE_RECORD.id], workers=1, at=0))
    clock[0] += 60
    asyncio.run(board._restart())
    clock[0] += 14
    board.check(BASE_RECORD)
    clock[0] += 2
    with pytest.raises(ShoalError) as caught:
        board.check(BASE_RECORD)
    assert caught.value.code is Code.NO_WORKER


def test_a_model_never_seen_is_refused_after_three_messages_time(clock: list[float]) -> None:
    board = PresenceBoard(15.0)
    clock[0] += LISTEN_S - 0.1
    board.check(BASE_RECORD)
    clock[0] += 0.2
    with pytest.raises(ShoalError):
        board.check(BASE_RECORD)


def test_machines_are_those_that_still_tell(clock: list[float]) -> None:
    board = PresenceBoard(15.0)

    def tell(machine: str, workers: int = 1) -> None:
        board.note(Presence(machine=machine, pool="p", models=["m"], workers=workers, at=0))

    tell("a")
    tell("a")
    assert board.machines("p") == 1
    tell("b")
    tell("drained", workers=0)
    assert (board.machines("p"), board.machines("other")) == (2, 0)
    clock[0] += MACHINE_STALE_S + 1
    tell("b")
    assert board.machines("p") == 1
