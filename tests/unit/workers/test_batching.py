"""Properties of batch formation: bounds hold, nobody starves, nothing is lost or run twice."""

from __future__ import annotations

import math
import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workers.batching.cost import Cost, CostModel
from workers.batching.policy import Bounds, Candidate, choose_rows
from workers.batching.split import split_by_length

calm = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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
