"""Labels: probabilities as the head was trained for, entities with the characters they are at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from tests.unit.workers.families import adapters_of, load, load_family, plain_model, with_head, write_model
from wire.canonical import HeadHeader
from wire.jobs import ClassifyInputs, ClassifyOutputs, Task, TokenClassifyOutputs
from workers.models.heads import head_class
from workers.models.protocol import PreparedInputs, Row
from workers.models.readouts.classify import ClassifyReadout
from workers.models.readouts.token_classify import find_entities
from workers.models.tokens import TextTokenizer

BIO = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def spread(*labels: str, names: list[str]) -> np.ndarray:
    """Probabilities with 0.9 on each token's label."""
    found = np.full((len(labels), len(names)), 0.1 / (len(names) - 1), dtype=np.float32)
    for token, label in enumerate(labels):
        found[token, names.index(label)] = 0.9
    return found


def entities(text: str, *tokens: tuple[str, str], names: list[str]) -> list[tuple[str, str]]:
    """(kind, characters) of the entities in ``text``, whose ``tokens`` are (word, label) in order."""
    spans, place = [], 0
    for word, _ in tokens:
        place = text.index(word, place)
        spans.append((place, place + len(word)))
        place += len(word)
    found = find_entities(spread(*[label for _, label in tokens], names=names), names, spans, text)
    assert all(abs(entity.score - 0.9) < 1e-6 for entity in found)
    return [(entity.label, text[entity.start : entity.end]) for entity in found]


def test_bio_joins_what_follows_and_begins_anew_at_b() -> None:
    text = "Ada Lovelace met Bob Ann in Rome"
    tokens = [("Ada", "B-PER"), ("Lovelace", "I-PER"), ("met", "O"), ("Bob", "B-PER"), ("Ann", "B-PER"), ("in", "O"),
              ("Rome", "I-LOC")]  # fmt: skip
    assert entities(text, *tokens, names=BIO) == [
        ("PER", "Ada Lovelace"), ("PER", "Bob"), ("PER", "Ann"), ("LOC", "Rome"),
    ]  # fmt: skip


@pytest.mark.parametrize(("single", "last"), [("S", "E"), ("U", "L")], ids=["BIOES", "BILOU"])
def test_schemes_with_marks_for_ends(single: str, last: str) -> None:
    names = ["O", "B-X", "I-X", f"{last}-X", f"{single}-X"]
    tokens = [("a", "B-X"), ("b", "I-X"), ("c", f"{last}-X"), ("d", "I-X"), ("e", f"{single}-X"), ("f", "I-X")]
    assert entities("a b c d e f", *tokens, names=names) == [("X", "a b c"), ("X", "d"), ("X", "e"), ("X", "f")]


def test_labels_without_marks_join_their_like() -> None:
    names = ["O", "noun", "big-verb"]
    tokens = [("a", "noun"), ("b", "noun"), ("c", "big-verb"), ("d", "O"), ("e", "noun")]
    assert entities("a b c d e", *tokens, names=names) == [("noun", "a b"), ("big-verb", "c"), ("noun", "e")]


@settings(max_examples=200, deadline=None)
@given(labels=st.lists(st.sampled_from(BIO), max_size=12))
def test_entities_cover_exactly_the_labelled_tokens(labels: list[str]) -> None:
    text = "x" * len(labels)
    spans = [(place, place + 1) for place in range(len(labels))]
    found = find_entities(spread(*labels, names=BIO), BIO, spans, text)
    covered = {place for entity in found for place in range(entity.start, entity.end)}
    assert covered == {place for place, label in enumerate(labels) if label != "O"}
    assert [entity.start for entity in found] == sorted(entity.start for entity in found)
    assert sum(entity.end - entity.start for entity in found) == len(covered)


def byte_tokenizer() -> Tokenizer:
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({symbol: number for number, symbol in enumerate(symbols)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<s>"])
    made.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A $B:0", [("<s>", 256)])
    return made


def piece_tokenizer() -> Tokenizer:
    pieces = [("<unk>", 0.0), ("\u2581", -3.0), *((letter, -4.0) for letter in "abeglmnorzüさ京東🐟水 ")]
    made = Tokenizer(models.Unigram([*pieces, ("\u2581met", -1.0)], unk_id=0))
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    return made


def word_tokenizer() -> Tokenizer:
    words = ["[UNK]", "zurich", "met", "🐟", "東", "京", "##x", "水", "ada"]
    made = Tokenizer(models.WordPiece({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


@pytest.mark.parametrize(
    "made", [byte_tokenizer(), piece_tokenizer(), word_tokenizer()], ids=["bytes", "pieces", "words"]
)
def test_spans_count_characters_of_emoji_and_cjk(made: Tokenizer) -> None:
    text = "🐟 met Zürich 東京 水"
    tokenizer = TextTokenizer(made, max_tokens=64, pad_id=0)
    (spans,) = tokenizer.prepare([text], Task.TOKEN_CLASSIFY, with_spans=True).spans
    for wanted in ("🐟", "met", "Zürich", "東京", "水"):
        start = text.index(wanted)
        inside = [start < end and first < start + len(wanted) for first, end in spans]
        labels = np.array([[not hit, hit] for hit in inside], dtype=np.float32)
        (entity,) = find_entities(labels, ["O", "I-X"], spans, text)
        assert text[entity.start : entity.end] == wanted


LOGITS = [np.array([2.0, -1.0, 0.5], dtype=np.float32), np.array([-800.0, 0.0, 800.0], dtype=np.float32)]


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        ("single_label_classification", torch.softmax(torch.tensor(np.stack(LOGITS)), -1).numpy()),
        ("multi_label_classification", torch.sigmoid(torch.tensor(np.stack(LOGITS))).numpy()),
        ("regression", np.stack(LOGITS)),
    ],
)
def test_scores_follow_the_problem(problem: str, expected: np.ndarray) -> None:
    readout = ClassifyReadout(TextTokenizer(word_tokenizer(), max_tokens=8, pad_id=0))
    prepared = PreparedInputs([Row([1], Task.CLASSIFY)] * 2, tokens=2)
    found = readout.finish(LOGITS, prepared, HeadHeader(Task.CLASSIFY, ["a", "b", "c"], [], problem=problem))
    np.testing.assert_allclose(found.scores, expected, rtol=1e-5, atol=1e-7)
    assert found.multi_label == (problem == "multi_label_classification")


def test_two_adapters_with_heads_of_different_tasks_in_one_batch(tmp_path: Path) -> None:
    model = load_family(write_model(tmp_path / "model", "distilbert"))
    folder = tmp_path / "model"
    texts = ["a small shoal of fish", "the storm"]
    found = {}
    for adapter, task, labels in zip(adapters_of(model, 2), (Task.CLASSIFY, Task.TOKEN_CLASSIFY), (2, 5), strict=True):
        plain = plain_model(folder, "distilbert", head_class(task), num_labels=labels)
        made = with_head(adapter, task, plain, labels)
        found[task] = (load(model, made, tmp_path), made.head)
    prepared = {task: model.prepare(task, ClassifyInputs(texts), head) for task, (_, head) in found.items()}
    rows = [row for one in prepared.values() for row in one.rows]
    outputs = model.forward(rows, [digest for digest, _ in found.values() for _ in texts])
    classes = model.kind.finish(Task.CLASSIFY, outputs[:2], prepared[Task.CLASSIFY], found[Task.CLASSIFY][1])
    spans = model.kind.finish(
        Task.TOKEN_CLASSIFY, outputs[2:], prepared[Task.TOKEN_CLASSIFY], found[Task.TOKEN_CLASSIFY][1]
    )
    assert isinstance(classes, ClassifyOutputs)
    assert classes.labels == ["L0", "L1"]
    assert [round(sum(scores), 5) for scores in classes.scores] == [1.0, 1.0]
    assert isinstance(spans, TokenClassifyOutputs)
    assert all(
        0 <= one.start < one.end <= len(text) for text, row in zip(texts, spans.entities, strict=True) for one in row
    )
    assert any(spans.entities)
