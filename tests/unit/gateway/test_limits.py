"""Rates and counts of keys."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.answers import header_value, request_id_or
from gateway.limits import MINUTE_S, Limits, admit_at
from wire.errors import Code, ShoalError
from wire.registry import KeyRecord, Scope


@given(st.integers(1, 600), st.lists(st.floats(0, 30), min_size=1, max_size=200))
def test_no_minute_holds_more_than_twice_the_rate(per_minute: int, pauses: list[float]) -> None:
    """The burst of a full minute plus what comes free during it, and never less than the rate."""
    theoretical, now = -math.inf, 1000.0
    admitted: list[float] = []
    for pause in pauses:
        now += pause
        theoretical, wait_s = admit_at(theoretical, now, per_minute)
        if not wait_s:
            admitted.append(now)
        else:
            assert admit_at(theoretical, now + wait_s + 1e-6, per_minute)[1] == 0
    for start in admitted:
        assert sum(start <= at < start + MINUTE_S for at in admitted) <= 2 * per_minute
    assert len(admitted) >= min(len(pauses), per_minute)


@pytest.mark.parametrize("per_minute", [1, 3, 7, 60, 1000])
def test_a_full_minutes_burst_is_allowed_and_no_more(per_minute: int) -> None:
    theoretical = -math.inf
    for _ in range(per_minute):
        theoretical, wait_s = admit_at(theoretical, 5.0, per_minute)
        assert wait_s == 0
    assert admit_at(theoretical, 5.0, per_minute)[1] == pytest.approx(MINUTE_S / per_minute)


def test_in_flight_is_counted_out_again() -> None:
    limits = Limits(max_in_flight=2, max_bytes=100)
    key = KeyRecord(id="a", team="t", scopes=[Scope.INFER], max_in_flight=1)
    free = KeyRecord(id="b", team="t", scopes=[Scope.INFER])
    for _ in range(3):
        limits.enter(key, 0.0)
        with pytest.raises(ShoalError, match="1 requests in flight"):
            limits.enter(key, 0.0)
        limits.enter(free, 0.0)
        with pytest.raises(ShoalError, match="its limit") as caught:
            limits.enter(free, 0.0)
        assert caught.value.code is Code.RATE_LIMITED
        limits.leave(key)
        limits.leave(free)
    assert limits.in_flight == 0


def test_bytes_are_bounded_and_counted_out_again() -> None:
    limits = Limits(max_in_flight=10, max_bytes=100)
    key = KeyRecord(id="a", team="t", scopes=[Scope.INFER])
    limits.enter(key, 0.0)
    held = limits.hold(500)
    limits.enter(key, 0.0)
    with pytest.raises(ShoalError, match="500 bytes") as caught:
        limits.hold(1)
    assert caught.value.code is Code.RATE_LIMITED
    limits.leave(key)
    limits.release(420)
    limits.enter(key, 0.0)
    limits.leave(key, limits.hold(20))
    with pytest.raises(ShoalError, match="limit"):
        limits.hold(21)
    limits.leave(key, held - 420)
    assert (limits.in_flight, limits.held_bytes) == (0, 0)


@given(st.text())
def test_header_values_cannot_break_out(text: str) -> None:
    value = header_value(text)
    assert not any(byte < 32 or byte == 127 for byte in value)


@pytest.mark.parametrize("given_id", [b"a\r\nx: y", b"", b"a" * 129, b"a b", None])
def test_harmful_request_ids_are_replaced(given_id: bytes | None) -> None:
    assert request_id_or(given_id, b"new") == b"new"
