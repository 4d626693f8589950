"""Tokenizing: what the model's own tokenizer gives, in bounded work that leaves the other threads alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Encoding, Tokenizer

from tests.unit.workers.conftest import WORDS
from wire.errors import Code, ShoalError
from wire.jobs import Task
from wire.registry import ModelRecord
from workers.models.tokens import TextTokenizer
from workers.sources import resolve_source

LIMIT = 40
MOST_CHARACTERS = 256 * LIMIT


class Counting:
    """The real tokenizer, counting the characters it reads. ``encode`` holds Python's lock: once ``served`` it must
    not be used.
    """

    def __init__(self, folder: Path) -> None:
        self.real = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.characters = 0
        self.served = False

    def encode_batch_fast(self, texts: Sequence[str], *, add_special_tokens: bool) -> list[Encoding]:
        self.characters += sum(map(len, texts))
        found: list[Encoding] = self.real.encode_batch_fast(texts, add_special_tokens=add_special_tokens)
        return found

    def encode(self, text: str, pair: str | None = None, *, add_special_tokens: bool) -> Encoding:
        assert not self.served, "every other thread waits while this runs"
        return self.real.encode(text, pair, add_special_tokens=add_special_tokens)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


@pytest.fixture
def counting(tiny_record: ModelRecord) -> Counting:
    return Counting(resolve_source(tiny_record.source))


@pytest.fixture
def tokenizer(counting: Counting) -> TextTokenizer:
    made = TextTokenizer(counting, max_tokens=LIMIT, pad_id=0)  # type: ignore[arg-type]
    counting.served = True
    return made


@pytest.mark.parametrize("text", ["a" * 1_000_000, " " * 1_000_000, "\u6c34" * 1_000_000, "fish " * 200_000])
def test_a_megabyte_is_read_only_as_far_as_the_cut_needs(
    counting: Counting, tokenizer: TextTokenizer, text: str
) -> None:
    prepared = tokenizer.prepare([text, "fish"], Task.EMBEDDINGS)
    assert counting.characters < 2 * MOST_CHARACTERS
    assert prepared.truncated == 1
    assert len(prepared.rows[0]) <= LIMIT
    with pytest.raises(ShoalError) as raised:
        tokenizer.prepare(["fish", text], Task.EMBEDDINGS, truncate=False)
    assert raised.value.info.code is Code.INPUT_TOO_LONG
    assert "Input 1 has" in raised.value.info.message
    assert counting.characters < 4 * MOST_CHARACTERS


def test_a_job_that_is_refused_for_its_first_text_reads_few_of_the_others(
    counting: Counting, tokenizer: TextTokenizer
) -> None:
    texts = ["fish " * 100] * 2048
    with pytest.raises(ShoalError, match="Input 0 has 102 tokens, the limit of the model is 40"):
        tokenizer.prepare(texts, Task.EMBEDDINGS, truncate=False)
    assert counting.characters < 100 * len(texts[0])


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_tokens_are_those_of_the_whole_text(data: st.DataObject, counting: Counting, tokenizer: TextTokenizer) -> None:
    piece = st.one_of(st.sampled_from(WORDS[4:]), st.just("x" * 120), st.just(" " * 300), st.just("\u6c34"))
    pieces = st.lists(st.tuples(piece, st.integers(1, 12)), max_size=12)
    texts = [
        " ".join(" ".join([one] * count) for one, count in found) for found in data.draw(st.lists(pieces, max_size=4))
    ]
    prepared = tokenizer.prepare(texts, Task.EMBEDDINGS)
    content = LIMIT - 2
    for text, row in zip(texts, prepared.rows, strict=True):
        whole = counting.real.encode(text[:MOST_CHARACTERS], add_special_tokens=False).ids
        assert row.ids == [2, *whole[:content], 3]
