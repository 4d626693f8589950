"""The machine's queue under any order of events."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sidecar.queueing.line import Entry
from sidecar.queueing.local import AFFINITY_WAIT_S, MODEL_WAIT_S, LocalQueue, WorkerView

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


def test_an_idle_worker_takes_what_no_other_idle_one_holds() -> None:
    queue = LocalQueue()
    queue.put(entry("1", adapter="x"))
    assert taken(queue, WorkerView(MODELS, MODELS), 0.0) == "1"


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


FLOWS = [("t", "x"), ("t", "y"), ("t", None), ("u", "x"), ("v", None)]


@given(st.lists(st.tuples(st.sampled_from(FLOWS), st.floats(0, 1)), max_size=40), st.data())
@settings(deadline=None)
def test_an_overdue_job_waits_for_its_own_like_and_a_fair_turn_of_the_others_alone(
    arrivals: list[tuple[tuple[str, str | None], float]], data: st.DataObject
) -> None:
    queue = LocalQueue()
    for number, ((tenant, adapter), at) in enumerate(sorted(arrivals, key=lambda one: one[1])):
        queue.put(Entry(str(number), "a", adapter, 10, at, NEVER, tenant=tenant))
    now = 1.0 + AFFINITY_WAIT_S
    order: list[Entry] = []
    while len(queue):
        view = data.draw(st.sampled_from([IDLE, busy({"x"}, {"y"}), busy({"y"}), busy(set(), {"x", "y"})]))
        found = queue.take(view, now)
        assert found is not None, "what is overdue is anybody's"
        order.append(found)
    for tenant, adapter in FLOWS:
        turns = [at for at, one in enumerate(order) if (one.tenant, one.adapter) == (tenant, adapter)]
        assert [order[at].arrived for at in turns] == sorted(order[at].arrived for at in turns)
    for one, other in itertools.permutations("tuv", 2):
        mine = [at for at, entry in enumerate(order) if entry.tenant == one]
        theirs = [at for at, entry in enumerate(order) if entry.tenant == other]
        # While both wait, neither gets more than one job ahead.
        for turn in range(min(len(mine), len(theirs)) - 1):
            assert mine[turn] < theirs[turn + 1]


def test_a_flood_of_one_tenant_does_not_shut_out_another() -> None:
    queue = LocalQueue()
    for number in range(1000):
        queue.put(Entry(f"flood-{number}", "a", f"adapter-{number % 50}", 10, 0.0, NEVER, tenant="flood"))
    for number in range(3):
        queue.put(Entry(f"late-{number}", "a", None, 10, 5.0, NEVER, tenant="late"))
    first = [taken(queue, IDLE, 6.0) for _ in range(7)]
    assert {"late-0", "late-1", "late-2"} <= set(first)


def test_adapters_of_a_tenant_take_turns() -> None:
    queue = LocalQueue()
    for number in range(20):
        queue.put(entry(f"hot-{number}", adapter="hot"))
    queue.put(entry("rare", adapter="rare", at=1.0))
    assert "rare" in {taken(queue, IDLE, 2.0) for _ in range(2)}


def test_a_model_that_another_worker_holds_is_not_loaded_twice_before_its_jobs_have_waited() -> None:
    queue = LocalQueue()
    queue.put(entry("1", model="b"))
    cold = WorkerView(MODELS, frozenset({"a"}), models_elsewhere=frozenset({"b"}))
    assert taken(queue, cold, MODEL_WAIT_S - 0.01) is None
    assert taken(queue, cold, MODEL_WAIT_S) == "1"
    queue.put(entry("2", model="b"))
    assert taken(queue, WorkerView(MODELS, rationed=frozenset({"b"})), 9.0) is None


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
