"""Properties of body parsing; the table of bad bodies runs against the real server."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.bodies.embeddings import EmbeddingsRequest, parse_embeddings
from gateway.bodies.texts import TextBounds, estimate_tokens
from wire.errors import Code, ShoalError

texts_of = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=10)


@given(texts_of, st.booleans(), st.sampled_from([None, "float", "base64"]))
def test_right_bodies_come_out_as_they_went_in(texts: list[str], truncate: bool, encoding: str | None) -> None:
    body = {"model": "m", "input": texts, "truncate": truncate, "encoding_format": encoding, "user": None}
    parsed = parse_embeddings(json.dumps(body).encode(), TextBounds(10, 10_000))
    assert parsed == EmbeddingsRequest("m", texts, encoding == "base64", truncate, None)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_with_a_code(body: bytes) -> None:
    with pytest.raises(ShoalError) as caught:
        parse_embeddings(body, TextBounds(10, 10_000))
    assert caught.value.status == 400


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from(["model", "input", "encoding_format", "dimensions", "truncate", "user", "x"]), json_values
    )
)
def test_any_json_is_taken_or_refused_never_a_crash(body: dict[str, object]) -> None:
    try:
        parsed = parse_embeddings(json.dumps(body).encode(), TextBounds(10, 10_000))
    except ShoalError as error:
        assert error.status == 400  # noqa: PT017 - both ends are right, neither may be another
    else:
        assert parsed.model == body["model"]
        assert parsed.texts == (body["input"] if isinstance(body["input"], list) else [body["input"]])


@pytest.mark.parametrize(
    "body", ['{"model": "a", "input": "x", "input": "y"}', '{"user": "a", "model": "a", "input": ["b"], "user": "c"}']
)
def test_a_field_given_twice_is_refused(body: str) -> None:
    with pytest.raises(ShoalError) as caught:
        parse_embeddings(body.encode(), TextBounds(10, 10_000))
    assert caught.value.code is Code.INVALID_JSON


def test_field_names_as_texts_are_no_duplicates() -> None:
    body = {"model": "input", "input": ["input", "model", "input", '{"input": "input"}'], "user": "user"}
    assert parse_embeddings(json.dumps(body).encode(), TextBounds(10, 10_000)).texts == body["input"]


def test_number_too_long_for_python_in_a_suspicious_body() -> None:
    body = b'{"model": "m", "input": ["input", "x"], "store": ' + b"9" * 10_000 + b"}"
    assert parse_embeddings(body, TextBounds(10, 10_000)).texts == ["input", "x"]


def test_a_text_too_long_is_refused_with_both_sizes() -> None:
    body = {"model": "m", "input": ["short", "é" * 51]}
    with pytest.raises(ShoalError) as caught:
        parse_embeddings(json.dumps(body).encode(), TextBounds(10, 100))
    info = caught.value.info
    assert (info.code, info.param) == (Code.INPUT_TOO_LONG, "input[1]")
    assert "102 bytes" in info.message
    assert "limit is 100" in info.message
    body["input"] = ["é" * 50]
    assert parse_embeddings(json.dumps(body).encode(), TextBounds(10, 100)).texts == body["input"]


@given(texts_of, st.integers(1, 600))
def test_estimate_is_bounded(texts: list[str], max_tokens: int) -> None:
    estimate = estimate_tokens(texts, max_tokens)
    read = sum(len(text.encode()) // 64 for text in texts)
    assert max(read, len(texts) * min(2, max_tokens)) <= estimate <= len(texts) * max_tokens + read
    assert estimate <= sum(len(text.encode()) // 4 + 2 for text in texts)


def test_what_is_cut_off_is_not_free() -> None:
    assert estimate_tokens(["x" * 1000], 256) == 1000 // 4 + 2
    assert estimate_tokens(["x" * 10_000], 256) == 256
    assert estimate_tokens(["x" * 256_000], 256) == 4000
