"""Names and addresses: one rule, and nothing outside it gets through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire import subjects
from wire.errors import HTTP_STATUS, RETRYABLE, Code, ShoalError
from wire.names import Address, FullName, nearest_names, parse_address, parse_full_name

part = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,62}", fullmatch=True)


@given(part, part)
def test_a_legal_name_is_read_back(team: str, adapter: str) -> None:
    assert str(parse_full_name(f"{team}/{adapter}")) == f"{team}/{adapter}"


@given(st.text(max_size=200))
def test_any_text_is_a_name_or_a_clear_refusal(text: str) -> None:
    if (
        parse_address(text.partition("@")[0].partition(":")[0]) is not None
        and text.count("/") == 1
        and set(text).isdisjoint("@:")
    ):
        assert str(parse_full_name(text)) == text
    else:
        with pytest.raises(ShoalError, match="a-z") as refusal:
            parse_full_name(text)
        assert refusal.value.code is Code.INVALID_NAME


@pytest.mark.parametrize(
    "text", ["Acme/x", "a b/c", "a//b", "a/../b", "../b", "a/🐟", "a/" + "x" * 64, "a/b/c", "", "/", "a/", "a/b\n"]
)
def test_illegal_names(text: str) -> None:
    with pytest.raises(ShoalError):
        parse_full_name(text)
    assert parse_address(text) is None


def test_addresses() -> None:
    name = FullName("acme", "support")
    assert parse_address("acme/support") == Address(name)
    assert parse_address("acme/support:canary") == Address(name, alias="canary")
    assert parse_address("acme/support@3") == Address(name, alias=None, version=3)
    for text in ("acme/support@", "acme/support@x", "acme/support@-1", "acme/support:", "acme/support@٣"):
        assert parse_address(text) is None


@given(st.text(min_size=1, max_size=80))
def test_any_model_name_is_a_legal_token(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    token = subjects.encode_token(name)
    assert subjects.decode_token(token) == name
    assert not set(token) & set(". *>\t\r\n/")


@given(st.lists(st.text(alphabet="ab.=~_-/", min_size=1, max_size=6), min_size=2, max_size=2, unique=True))
def test_two_models_never_share_a_subject_or_consumer(names: list[str]) -> None:
    first, second = names
    assert subjects.work("p", first) != subjects.work("p", second)
    assert subjects.work_consumer("p", first) != subjects.work_consumer("p", second)


def test_nearest_names() -> None:
    assert nearest_names("acme/sup-port", ["acme/support", "other/thing"]) == ["acme/support"]


def test_every_code_has_a_status_and_retryable_ones_are_transient() -> None:
    assert set(HTTP_STATUS) == set(Code)
    assert all(HTTP_STATUS[code] in {429, 500, 503, 504, 507} for code in RETRYABLE)
