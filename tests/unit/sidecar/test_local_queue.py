"""The machine's queue under any order of events."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sidecar.queueing.local import AFFINITY_WAIT_S, Entry, LocalQueue, WorkerView

MODELS = frozenset({"a", "b"})
NEVER = 1e9


def entry(name: str, *, model: str = "a", adapter: str | None = None, at: float = 0.0, suspect: bool = False) -> Entry:
    return Entry(name, model, adapter, 10, at, NEVER, suspect)


def busy(adapters: set[str] | None = None, elsewhere: set[str] | None = None) -> WorkerView:
    return WorkerView(MODELS, MODELS, frozenset(adapters or ()), frozenset(elsewhere or ()), idle=False)


IDLE = WorkerView(MODELS, MODELS)


def taken(queue: LocalQueue, view: WorkerView, now: float) -> str | None:
    found = queue.take(view, now)
    return None if found is None else found.id


def test_a_busy_worker_is_given_what_it_holds_first() -> None:
    queue = LocalQueue()
    for one in (entry("1", adapter="x"), entry("2", adapter="y"), entry("3")):
        queue.put(one)
    assert taken(queue, busy({"y"}, {"x"}), 0.0) == "2"
    assert taken(queue, busy({"y"}, {"x"}), 0.0) == "3"
    assert taken(queue, busy({"y"}, {"x"}), 0.0) is None, "x is resident at a worker that has room"
    assert taken(queue, busy({"y"}, {"x"}), AFFINITY_WAIT_S) == "1", "but not for longer than the bound"


def test_an_idle_worker_takes_what_others_hold() -> None:
    queue = LocalQueue()
    queue.put(entry("1", adapter="x"))
    assert taken(queue, WorkerView(MODELS, MODELS, elsewhere=frozenset({"x"})), 0.0) == "1"


def test_a_model_that_is_not_resident_waits_briefly_for_one_that_is() -> None:
    queue = LocalQueue()
    queue.put(entry("1", model="b", at=0.0))
    queue.put(entry("2", model="a", at=0.01))
    view = WorkerView(MODELS, frozenset({"a"}))
    assert taken(queue, view, 0.02) == "2"
    queue.put(entry("3", model="a", at=0.03))
    assert taken(queue, view, 0.06) == "1"


def test_a_worker_runs_a_suspect_alone() -> None:
    queue = LocalQueue()
    queue.put(entry("1"))
    queue.put(entry("2", suspect=True, at=1.0))
    assert taken(queue, busy(), 1.0) is None, "it empties itself first"
    assert taken(queue, IDLE, 1.0) == "2"
    assert taken(queue, IDLE, 1.0) == "1"


def test_a_job_that_comes_back_goes_before_younger_ones() -> None:
    queue = LocalQueue()
    first = entry("1", at=0.0)
    queue.put(first)
    queue.put(entry("2", at=1.0))
    assert queue.take(IDLE, 1.0) is first
    queue.put(first)
    assert taken(queue, IDLE, 1.0) == "1"


def test_parked_jobs_delay_nobody_and_return_to_their_place() -> None:
    queue = LocalQueue()
    queue.park(entry("1", adapter="x", at=0.0), "x")
    queue.put(entry("2", at=1.0))
    queue.put(entry("3", at=2.0))
    assert taken(queue, IDLE, 2.0) == "2"
    assert queue.ready_tokens == 10
    assert queue.unpark("x") == 1
    assert taken(queue, IDLE, 2.0) == "1"
    queue.park(entry("4", adapter="y"), "y")
    assert [one.id for one in queue.remove_parked("y")] == ["4"]
    assert len(queue) == 1


@given(st.lists(st.tuples(st.sampled_from(["x", "y", None]), st.floats(0, 1)), max_size=40), st.data())
@settings(deadline=None)
def test_no_job_waits_longer_than_those_before_it_plus_the_bound(
    arrivals: list[tuple[str | None, float]], data: st.DataObject
) -> None:
    """Once a job is overdue, only jobs that arrived before it may be taken before it."""
    queue = LocalQueue()
    for number, (adapter, at) in enumerate(sorted(arrivals, key=lambda one: one[1])):
        queue.put(entry(str(number), adapter=adapter, at=at))
    now = 1.0 + AFFINITY_WAIT_S
    order = []
    while len(queue):
        view = data.draw(st.sampled_from([IDLE, busy({"x"}, {"y"}), busy({"y"}), busy(set(), {"x", "y"})]))
        order.append(taken(queue, view, now))
    assert order == [str(number) for number in range(len(arrivals))]


@dataclass
class Model:
    """What must be in the queue."""

    waiting: dict[str, Entry] = field(default_factory=dict)
    parked: dict[str, str] = field(default_factory=dict)


class QueueMachine(RuleBasedStateMachine):
    """Every job that went in is in the queue until it was taken, cancelled or expired, and comes out once."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = LocalQueue()
        self.model = Model()
        self.now = 0.0
        self.count = 0

    @rule(
        model=st.sampled_from(["a", "b", "c"]), adapter=st.sampled_from([None, "x", "y"]), life=st.floats(0.01, 3),
        park=st.booleans(), suspect=st.booleans(), age=st.floats(0, 1),
    )  # fmt: skip
    def put(self, model: str, adapter: str | None, life: float, park: bool, suspect: bool, age: float) -> None:
        self.count += 1
        one = Entry(str(self.count), model, adapter, self.count % 7 + 1, self.now - age, self.now + life, suspect)
        self.model.waiting[one.id] = one
        if park and adapter:
            self.queue.park(one, adapter)
            self.model.parked[one.id] = adapter
        else:
            self.queue.put(one)

    @rule(
        resident=st.sets(st.sampled_from(["x", "y"])),
        elsewhere=st.sets(st.sampled_from(["x", "y"])),
        idle=st.booleans(),
    )
    def take(self, resident: set[str], elsewhere: set[str], idle: bool) -> None:
        view = WorkerView(MODELS, frozenset({"a"}), frozenset(resident), frozenset(elsewhere), idle)
        found = self.queue.take(view, self.now)
        ready = [one for one in self.model.waiting.values() if one.id not in self.model.parked and one.model in MODELS]
        if found is None:
            assert not (idle and ready), "an idle worker leaves nothing that it can run"
            return
        assert found in ready
        assert not found.suspect or idle
        del self.model.waiting[found.id]

    @precondition(lambda self: self.model.waiting)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.waiting)))
        assert self.queue.remove(name) is self.model.waiting.pop(name)
        self.model.parked.pop(name, None)
        assert self.queue.remove(name) is None

    @rule(key=st.sampled_from(["x", "y"]))
    def unpark(self, key: str) -> None:
        freed = [name for name, held in self.model.parked.items() if held == key]
        assert self.queue.unpark(key) == len(freed)
        for name in freed:
            del self.model.parked[name]

    @rule(step=st.floats(0, 1))
    def pass_time(self, step: float) -> None:
        self.now += step
        expired = self.queue.expire(self.now)
        due = {name for name, one in self.model.waiting.items() if one.deadline <= self.now}
        assert {one.id for one in expired} == due
        for name in due:
            del self.model.waiting[name]
            self.model.parked.pop(name, None)

    @invariant()
    def counts_agree(self) -> None:
        assert len(self.queue) == len(self.model.waiting)
        assert self.queue.parked == len(self.model.parked)
        ready = sum(one.tokens for name, one in self.model.waiting.items() if name not in self.model.parked)
        assert self.queue.ready_tokens == ready


TestQueueMachine = QueueMachine.TestCase
