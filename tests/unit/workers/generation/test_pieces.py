"""Text that arrives in pieces: no half character, nothing of a stop string, and all pieces joined are the text."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from workers.generation.detokenize import Detokenizer
from workers.generation.stops import StopStrings


def byte_tokenizer() -> Tokenizer:
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({symbol: number for number, symbol in enumerate(symbols)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


TOKENIZER = byte_tokenizer()


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=30), st.text(max_size=12))
def test_pieces_are_whole_characters_and_join_to_the_text(prompt: str, text: str) -> None:
    ids = TOKENIZER.encode(text).ids
    detokenizer = Detokenizer(TOKENIZER.decode, TOKENIZER.encode(prompt).ids)
    pieces = [detokenizer.push(token) for token in ids]
    assert "".join(pieces) + detokenizer.flush() == text
    if "\ufffd" not in text:
        assert "\ufffd" not in "".join(pieces)


def test_bytes_of_no_character_are_not_held_for_ever() -> None:
    broken = TOKENIZER.encode("é").ids[0]
    detokenizer = Detokenizer(TOKENIZER.decode, [])
    pieces = [detokenizer.push(broken) for _ in range(40)]
    assert any(pieces)
    good = [detokenizer.push(token) for token in TOKENIZER.encode("fish").ids]
    assert "".join(good).endswith("fish")


def test_a_space_that_decoders_drop_at_a_start_stays_within_a_text() -> None:
    tokenizer = Tokenizer(models.WordLevel({"▁is": 0, "▁Paris": 1}, "▁is"))
    tokenizer.decoder = decoders.Metaspace()
    assert tokenizer.decode([1]) == "Paris"
    assert Detokenizer(tokenizer.decode, [0]).push(1) == " Paris"


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.text("abc", max_size=4), max_size=12),
    st.lists(st.text("abc", min_size=1, max_size=4), max_size=3),
)
def test_stop_strings_are_found_across_pieces_and_nothing_of_them_is_sent(pieces: list[str], stops: list[str]) -> None:
    whole = "".join(pieces)
    places = [whole.find(stop) for stop in stops if stop in whole]
    watch = StopStrings(stops)
    sent = ""
    for number, piece in enumerate(pieces):
        text, stopped = watch.feed(piece)
        sent += text
        so_far = "".join(pieces[: number + 1])
        assert stopped == any(stop in so_far for stop in stops), "a stop string was seen late or where none is"
        if stopped:
            assert sent == so_far[: min(so_far.find(stop) for stop in stops if stop in so_far)]
            return
        assert not any(sent.endswith(stop) for stop in stops)
        assert whole.startswith(sent)
    assert not places
    assert sent + watch.flush() == whole
