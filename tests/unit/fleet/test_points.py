"""Seconds are merged without inventing anything."""

from __future__ import annotations

from fleet.telemetry.points import Second, percentile, point_second
from tests.unit.fleet.samples import device, sample


def test_unknown_is_none_and_never_zero() -> None:
    second = Second(5)
    second.add(sample(at=5.0))
    point = second.point()
    unknown = (
        point.utilization, point.memory_used_bytes, point.process_bytes, point.reserved_bytes, point.power_watts,
        point.temperature_c, point.batch_rows, point.batch_adapters, point.queue_p50_ms, point.queue_p95_ms,
    )  # fmt: skip
    assert unknown == (None,) * 10
    assert point.requests == 0


def test_figures_that_are_no_numbers_are_unknown() -> None:
    second = Second(5)
    second.add(sample(at=5.0, busy=float("nan"), device=device(utilization=float("inf"), power_watts=-1.0)))
    point = second.point()
    assert (point.busy, point.utilization, point.power_watts) == (None, None, None)


def test_two_samples_of_one_second_are_merged_and_a_repeated_one_counts_once() -> None:
    first = sample(at=5.1, requests=10, busy=0.2, queue_ms=[1.0, 2.0, 3.0], batch_rows=[4], batch_adapters=[2])
    late = sample(at=5.9, requests=20, busy=0.6, queue_ms=[9.0], batch_rows=[8], batch_adapters=[4])
    second = Second(5)
    for item in (first, late, first):
        second.add(item)
    point = second.point()
    assert (point.requests, point.samples, point.requests_per_s) == (30, 2, 15.0)
    assert (point.busy, point.batch_rows, point.batch_adapters) == (0.4, 6.0, 3.0)
    assert (point.queue_p50_ms, point.queue_p95_ms) == (2.0, 9.0)


def test_percentile_is_the_nearest_rank() -> None:
    values = [float(number) for number in range(1, 101)]
    assert percentile(values, 0.5) == 50.0
    assert percentile(values, 0.95) == 95.0
    assert percentile([], 0.5) is None


def test_a_worker_with_a_wrong_clock_is_shown_at_ours() -> None:
    assert point_second(100.9, 101.2) == 100
    assert point_second(100.9, 5000.0) == 5000
    assert point_second(float("nan"), 7.0) == 7
