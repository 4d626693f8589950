"""Coalescing keeps the newest word of each worker, and its memory depends on workers and not on messages."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleet.mailbox import Mailbox
from fleet.telemetry.intake import MAX_PENDING_SECONDS, MAX_WORKERS, Intake
from fleet.telemetry.points import Second
from fleet.telemetry.states import Update, WorkerState, worker_state
from tests.unit.fleet.samples import resident, telemetry


def _state(worker: str, number: int, *, with_adapters: bool) -> WorkerState:
    spoken = telemetry(worker=worker, at=float(number), requests=number, adapters=[resident(f"{number:064d}")])
    second = Second(number)
    second.add(spoken.sample)
    return worker_state(spoken, point=second.point(), received=float(number), with_adapters=with_adapters)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), min_size=1, max_size=60))
def test_a_slow_reader_gets_the_newest_state_and_the_newest_adapters(sent: list[tuple[str, bool]]) -> None:
    mailbox = Mailbox()
    newest: dict[str, int] = {}
    adapters: dict[str, int] = {}
    for number, (worker, with_adapters) in enumerate(sent):
        mailbox.put(Update(float(number), [_state(worker, number, with_adapters=with_adapters)]))
        newest[worker] = number
        if with_adapters:
            adapters[worker] = number
    taken = {state.worker: state for state in mailbox.take()}
    assert {worker: state.point.requests for worker, state in taken.items()} == newest
    for worker, state in taken.items():
        expected = None if worker not in adapters else f"{adapters[worker]:064d}"
        assert (state.adapters[0].digest if state.adapters else None) == expected
    assert mailbox.take() == []


def test_memory_is_bounded_by_workers_and_seconds() -> None:
    intake = Intake()
    for number in range(MAX_WORKERS + 50):
        intake.add_telemetry(telemetry(worker=f"w{number}"), received=1_000_000.0)
    assert len(intake.workers) == MAX_WORKERS
    assert intake.refused == 50
    for number in range(2000):
        at = 1_000_001.0 + number
        intake.add_telemetry(telemetry(worker="w0", at=at), received=at)
    assert len(intake.pending_points()["box.w0"]) == MAX_PENDING_SECONDS


def test_two_hundred_samples_in_a_second_become_one_state() -> None:
    intake = Intake()
    for number in range(200):
        intake.add_telemetry(telemetry(at=1000 + number / 200, requests=1), received=1000.5)
    (change,) = intake.take_changes(1001.0)
    assert (change.point.samples, change.point.requests, change.point.requests_per_s) == (200, 200, 1.0)
    assert intake.take_changes(1001.1) == []


def test_adapters_are_sent_when_residency_changes_and_left_out_while_it_does_not() -> None:
    intake = Intake()

    def step(at: float, digest: str, hits: int) -> WorkerState:
        intake.add_telemetry(telemetry(at=at, adapters=[resident(digest, hits=hits)]), received=at)
        (change,) = intake.take_changes(at)
        return change

    assert step(1000.0, "a", 1).adapters is not None
    assert step(1001.0, "a", 2).adapters is None
    assert step(1002.0, "b", 2).adapters is not None
    assert step(1004.0, "b", 3).adapters is None
    # hits are refreshed every 3 s
    refreshed = step(1005.5, "b", 9).adapters
    assert refreshed is not None
    assert refreshed[0].hits == 9


def test_written_seconds_are_dropped_and_the_newest_is_kept() -> None:
    intake = Intake()
    for at in (1000.0, 1001.0, 1002.0):
        intake.add_telemetry(telemetry(at=at), received=at)
    pending = intake.pending_points()
    intake.mark_written(pending, before=2000)
    assert [second.at for second in intake.pending_points()["box.cpu"]] == [1002]
    assert intake.current_states()[0].point.at == 1002


def test_silent_workers_are_forgotten_after_an_hour() -> None:
    intake = Intake()
    intake.add_telemetry(telemetry(worker="old"), received=1000.0)
    intake.add_telemetry(telemetry(worker="new"), received=4000.0)
    intake.forget(1000.0 + 3600.5)
    assert list(intake.workers) == ["box.new"]
