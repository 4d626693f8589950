"""Properties of batch formation: bounds hold, nobody starves, nothing is lost or run twice."""

from __future__ import annotations

import math
import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabric.fairness import TenantShares
from workers.batching.cost import Cost, CostModel
from workers.batching.policy import Bounds, Candidate, choose_rows
from workers.batching.split import split_by_length

calm = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
candidates = st.lists(
    st.tuples(
        st.lists(st.integers(1, 256), min_size=1, max_size=20),
        st.sampled_from([None, "a", "b", "c", "d", "e"]),
    ),
    min_size=1,
    max_size=12,
)
bounds = st.builds(Bounds, tokens=st.integers(1, 2000), adapters=st.integers(1, 4), loads=st.integers(1, 3))


def build(jobs: list[tuple[list[int], str | None]], resident: set[str]) -> list[Candidate]:
    return [
        Candidate(job=str(number), lengths=lengths, adapter=adapter, resident=adapter in resident)
        for number, (lengths, adapter) in enumerate(jobs)
    ]


@calm
@given(candidates, bounds, st.sets(st.sampled_from(["a", "b", "c"])))
def test_a_batch_keeps_its_bounds_and_the_oldest_job_always_runs(
    jobs: list[tuple[list[int], str | None]], limit: Bounds, resident: set[str]
) -> None:
    waiting = build(jobs, resident)
    chosen = choose_rows(waiting, limit)
    assert chosen["0"] >= 1
    picked = [one for one in waiting if chosen.get(one.job, 0)]
    assert all(0 < chosen[one.job] <= len(one.lengths) for one in picked)
    tokens = sum(sum(one.lengths[: chosen[one.job]]) for one in picked)
    assert tokens <= limit.tokens or sum(chosen.values()) == 1
    adapters = {one.adapter for one in picked} - {None}
    assert len(adapters) <= limit.adapters
    assert len(adapters - resident) <= limit.loads


@calm
@given(candidates, bounds)
def test_every_row_runs_exactly_once_in_a_bounded_number_of_batches(
    jobs: list[tuple[list[int], str | None]], limit: Bounds
) -> None:
    left = {str(number): list(lengths) for number, (lengths, _) in enumerate(jobs)}
    rows = sum(map(len, left.values()))
    for _ in range(rows):
        waiting = [
            Candidate(str(number), left[str(number)], adapter, resident=False)
            for number, (_, adapter) in enumerate(jobs)
            if left[str(number)]
        ]
        if not waiting:
            break
        for job, count in choose_rows(waiting, limit).items():
            del left[job][:count]
    assert not any(left.values())


@calm
@given(st.integers(2, 20), st.integers(1, 4), st.integers(1, 3), st.integers(64, 2000))
def test_with_more_adapters_than_slots_every_adapter_runs_within_bounded_batches(
    used: int, slots: int, loads: int, tokens: int
) -> None:
    """All adapters always have more waiting; the slots hold a few of them, the last ones used."""
    shares = TenantShares()
    resident: list[str] = []
    last = dict.fromkeys((f"adapter-{number}" for number in range(used)), 0)
    for batch in range(1, 5 * used):
        waiting = [Candidate(f"{name}-{batch}", [32] * 4, name, resident=name in resident) for name in last]
        chosen = choose_rows(waiting, Bounds(tokens=tokens, adapters=slots, loads=loads), shares)
        for name in last:
            if chosen.get(f"{name}-{batch}"):
                last[name] = batch
                resident = [name, *(one for one in resident if one != name)][:slots]
        # each batch serves at least the one furthest behind; a turn of up to four rows may come before it
        assert all(batch - served <= 4 * used for served in last.values())


@calm
@given(st.integers(10, 200), st.integers(1, 40), st.integers(64, 4000))
def test_a_flood_of_one_tenant_gets_no_more_than_its_share(jobs: int, adapters: int, tokens: int) -> None:
    shares = TenantShares()
    got = {"flood": 0, "small": 0}
    for _ in range(20):
        flood = [Candidate(f"f{at}", [32], f"a{at % adapters}", resident=True, tenant="flood") for at in range(jobs)]
        small = [Candidate(f"s{at}", [32], None, resident=True, tenant="small") for at in range(jobs)]
        chosen = choose_rows([*flood, *small], Bounds(tokens=tokens, adapters=64, loads=8), shares)
        for one in (*flood, *small):
            got[one.tenant] += 32 * chosen.get(one.job, 0)
    assert abs(got["flood"] - got["small"]) <= 64


def test_base_rows_run_while_cold_adapters_wait_for_their_load() -> None:
    cold = [Candidate(f"c{at}", [32], f"a{at}", resident=False, tenant="t") for at in range(100)]
    base = [Candidate(f"b{at}", [32], None, resident=True, tenant="t") for at in range(8)]
    chosen = choose_rows([*cold, *base], Bounds(tokens=4096, adapters=128, loads=2), TenantShares())
    assert sum(name.startswith("c") for name in chosen) == 2
    assert sum(name.startswith("b") for name in chosen) == 8


COST = Cost(fixed_s=0.01, token_s=1e-4, adapter_s=0.0)


@calm
@given(st.floats(0.0, 0.5), st.integers(0, 60))
def test_a_batch_is_cut_so_that_the_most_urgent_job_makes_it(slack_s: float, place: int) -> None:
    limit = Bounds(tokens=4096, adapters=8, loads=8, cost=COST)
    waiting = [Candidate(f"j{at}", [64], None, resident=True) for at in range(64)]
    waiting[place] = Candidate("urgent", [64], None, resident=True, slack_s=slack_s)
    chosen = choose_rows(waiting, limit)
    expected_s = COST.seconds(64 * sum(chosen.values()))
    full_s = COST.seconds(4096)
    if COST.seconds(1024) <= slack_s < full_s:
        assert chosen.get("urgent") == 1
        assert expected_s <= slack_s + 64 * COST.token_s
    else:
        assert sum(chosen.values()) == 64, "a deadline that nothing depends on must not make batches small"


def test_under_overload_batches_stay_large() -> None:
    """Every job is nearly late: cutting for each of them would make all of them late."""
    waiting = [Candidate(f"j{at}", [64], None, resident=True, slack_s=0.02) for at in range(200)]
    chosen = choose_rows(waiting, Bounds(tokens=4096, adapters=8, loads=8, cost=COST))
    assert 64 * sum(chosen.values()) == 4096


@calm
@given(st.integers(0, 2**32))
def test_the_cost_model_is_not_led_astray_by_single_slow_passes(seed: int) -> None:
    chance = random.Random(seed)
    truth = Cost(fixed_s=5e-3, token_s=5e-5, adapter_s=1e-4)
    model = CostModel()
    for number in range(200):
        tokens, adapters = chance.randint(8, 4096), chance.randint(0, 64)
        seconds = truth.seconds(tokens, adapters) * chance.uniform(0.98, 1.02)
        # one pass in twenty meets a stop of half a second
        model.update(
            tokens=tokens, adapters=adapters, seconds=seconds + (0.5 if number > 20 and number % 20 == 0 else 0)
        )
    assert math.isclose(model.cost.seconds(2048, 16), truth.seconds(2048, 16), rel_tol=0.25)


def test_the_cost_model_follows_a_machine_that_became_slower() -> None:
    chance = random.Random(1)
    model = CostModel()
    for factor in (1.0, 4.0):
        truth = Cost(fixed_s=5e-3 * factor, token_s=5e-5 * factor, adapter_s=1e-4 * factor)
        for _ in range(80):
            tokens, adapters = chance.randint(8, 4096), chance.randint(0, 64)
            model.update(tokens=tokens, adapters=adapters, seconds=truth.seconds(tokens, adapters))
        assert math.isclose(model.cost.seconds(2048, 16), truth.seconds(2048, 16), rel_tol=0.25)


def test_a_job_of_thousands_of_rows_lets_a_late_single_text_into_the_next_batch() -> None:
    waiting = build([([32] * 2048, None), ([16], None)], set())
    assert choose_rows(waiting, Bounds(tokens=2048, adapters=8, loads=8)).get("1") == 1


@calm
@given(st.integers(1, 30), st.integers(600, 20_000), st.booleans())
def test_any_number_of_huge_jobs_lets_a_late_single_text_into_the_next_batch(
    huge: int, tokens: int, adapters: bool
) -> None:
    waiting = [
        Candidate(str(number), [64] * 2048, "a" if adapters else None, resident=True, started=True)
        for number in range(huge)
    ]
    late = Candidate("late", [64], None, resident=True)
    chosen = choose_rows([*waiting, late], Bounds(tokens=tokens, adapters=8, loads=8))
    assert chosen.get("late") == 1
    assert chosen["0"] >= 1
    assert sum(chosen.values()) == tokens // 64, "the batch was not filled"


@calm
@given(st.lists(st.integers(1, 256), min_size=1, max_size=80), st.integers(1, 4096))
def test_a_split_keeps_every_row_and_never_costs_more_than_one_pass(lengths: list[int], limit: int) -> None:
    cost = Cost(fixed_s=3e-3, token_s=5e-5, adapter_s=0.0)
    passes = split_by_length(lengths, cost, max_tokens=limit)
    assert sorted(row for rows in passes for row in rows) == list(range(len(lengths)))
    padded = [len(rows) * max(lengths[row] for row in rows) for rows in passes]
    assert all(tokens <= limit or len(rows) == 1 for tokens, rows in zip(padded, passes, strict=True))
    one_pass = len(lengths) * max(lengths)
    if one_pass <= limit:
        assert sum(map(cost.seconds, padded)) <= cost.seconds(one_pass) + 1e-9


def test_short_and_long_rows_run_apart_and_like_rows_together() -> None:
    cost = Cost(fixed_s=3e-3, token_s=5e-5, adapter_s=0.0)
    assert len(split_by_length([8] * 32 + [256] * 2, cost, max_tokens=16_384)) == 2
    assert len(split_by_length([30, 31, 32, 33] * 4, cost, max_tokens=16_384)) == 1


@calm
@given(
    st.floats(1e-3, 2e-2),
    st.floats(1e-5, 2e-4),
    st.integers(0, 2**32),
)
def test_the_cost_model_learns_a_machine(fixed_s: float, token_s: float, seed: int) -> None:
    chance = random.Random(seed)
    passes = [(chance.randint(8, 4096), chance.randint(0, 64)) for _ in range(60)]
    truth = Cost(fixed_s=fixed_s, token_s=token_s, adapter_s=1e-4)
    model = CostModel()
    for tokens, adapters in passes * 3:
        model.update(tokens=tokens, adapters=adapters, seconds=truth.seconds(tokens, adapters))
    for tokens, adapters in passes:
        assert math.isclose(
            model.cost.seconds(tokens, adapters), truth.seconds(tokens, adapters), rel_tol=0.1, abs_tol=2e-3
        )
