"""Texts to token ids, exactly as the model's own tokenizer does, bounded in time for very long texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tokenizers import Encoding, Tokenizer

from wire.errors import Code, ShoalError
from wire.jobs import Task
from workers.models.protocol import PreparedInputs, Row

# A text is tokenized only as far as its cut needs: in batches, which leave Python's lock to the other threads, of
# prefixes that grow while they give too few tokens. Word splitting is local, so tokens of a prefix are those of the
# text but for the last word; the margin is more than one word can yield. A word of a megabyte is one token to
# WordPiece, so growth has an end: what lies behind it counts as cut off.
_CHARACTERS_PER_TOKEN = 16
_MOST_CHARACTERS_PER_TOKEN = 256
_MARGIN_TOKENS = 256
_TEXTS_AT_ONCE = 64

Span = tuple[int, int]
_NO_SPAN: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class _Content:
    """Token ids of a text, or of its beginning when not ``whole``, with their characters where asked for."""

    ids: list[int]
    whole: bool
    spans: list[Span]


@dataclass(frozen=True, slots=True)
class _Frame:
    """The special tokens around one text or a pair: ``parts`` are those before, between and after the texts.
    ``types`` are the type ids of the same, ``content_types`` those of the texts' own tokens."""

    parts: list[list[int]]
    types: list[list[int]]
    content_types: list[int]

    @property
    def size(self) -> int:
        return sum(map(len, self.parts))


class TextTokenizer:
    """A fast tokenizer with a token limit; safe to use beside the device's thread."""

    def __init__(self, tokenizer: Tokenizer, *, max_tokens: int, pad_id: int, lower: bool = False) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        self._single = _frame(tokenizer.encode("a", add_special_tokens=True), 1)
        self._pair = tokenizer.encode("a", "a", add_special_tokens=True)
        self._lower = lower
        self.max_tokens = max_tokens
        self.pad_id = pad_id

    def prepare(
        self, texts: Sequence[str], task: Task, *, truncate: bool = True, prompt: str = "", pool_prompt: bool = True,
        with_spans: bool = False,
    ) -> PreparedInputs:  # fmt: skip
        """Token ids of every text behind ``prompt``, special tokens included.

        Unless ``pool_prompt``, rows tell how many tokens at their start are the prompt's. Raises
        ``ShoalError(INPUT_TOO_LONG)`` naming tokens and limit when ``truncate`` is false.
        """
        texts = self._cased([prompt + text for text in texts] if prompt else texts)
        rows: list[Row] = []
        spans: list[list[Span]] = []
        truncated = 0
        room = self.max_tokens - self._single.size
        head, tail = self._single.parts
        skipped = 0 if pool_prompt or not prompt else self._prompt_tokens(prompt)
        for number, content in enumerate(self._contents(texts, cut=truncate, with_spans=with_spans)):
            too_long = not content.whole or len(content.ids) > room
            if too_long and not truncate:
                raise self._too_long(number, content, len(texts[number]), self._single.size)
            truncated += too_long
            rows.append(Row([*head, *content.ids[:room], *tail], task, prompt_tokens=skipped))
            if with_spans:
                spans.append([_NO_SPAN] * len(head) + content.spans[:room] + [_NO_SPAN] * len(tail))
        return PreparedInputs(
            rows, sum(map(len, rows)), truncated, spans=spans, texts=list(texts) if with_spans else []
        )

    def prepare_pairs(self, first: str, seconds: Sequence[str], task: Task, *, truncate: bool = True) -> PreparedInputs:
        """Token ids of ``first`` with each of ``seconds``; the longer of a pair is cut first.

        Raises ``ShoalError``: INPUT_TOO_LONG when ``truncate`` is false, MODEL_UNLOADABLE when the tokenizer has an own
        way with pairs.
        """
        one, *others = self._contents(self._cased([first, *seconds]), cut=truncate)
        frame = _frame(self._pair, 2)
        room = self.max_tokens - frame.size
        rows: list[Row] = []
        truncated = 0
        for number, other in enumerate(others):
            too_long = not (one.whole and other.whole) or len(one.ids) + len(other.ids) > room
            if too_long and not truncate:
                raise self._too_long(number, other, len(seconds[number]), frame.size, beside=len(one.ids))
            truncated += too_long
            rows.append(_join(frame, one.ids, other.ids, room, task))
        return PreparedInputs(rows, sum(map(len, rows)), truncated)

    def _cased(self, texts: Sequence[str]) -> Sequence[str]:
        return [text.lower() for text in texts] if self._lower else texts

    def _prompt_tokens(self, prompt: str) -> int:
        """As sentence-transformers counts: the prompt's own tokens and those before it."""
        (encoding,) = self._tokenizer.encode_batch_fast([prompt], add_special_tokens=False)
        return len(self._single.parts[0]) + len(encoding.ids)

    def _contents(self, texts: Sequence[str], *, cut: bool, with_spans: bool = False) -> Iterator[_Content]:
        # a few at a time, so that a job that is refused for one text stops there
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            yield from self._some(texts[start : start + _TEXTS_AT_ONCE], cut=cut, with_spans=with_spans)

    def _some(self, texts: Sequence[str], *, cut: bool, with_spans: bool) -> list[_Content]:
        most = self.max_tokens * _MOST_CHARACTERS_PER_TOKEN
        length = self.max_tokens * _CHARACTERS_PER_TOKEN if cut else most
        # spans cost half as much again
        encode = self._tokenizer.encode_batch if with_spans else self._tokenizer.encode_batch_fast
        found: dict[int, _Content] = {}
        pending = list(range(len(texts)))
        while pending:
            encodings = encode([texts[number][:length] for number in pending], add_special_tokens=False)
            for number, encoding in zip(pending, encodings, strict=True):
                spans = list(encoding.offsets) if with_spans else []
                found[number] = _Content(encoding.ids, len(texts[number]) <= length, spans)
            if length == most:
                break
            enough = self.max_tokens + _MARGIN_TOKENS
            pending = [number for number in pending if not found[number].whole and len(found[number].ids) < enough]
            length = min(most, 4 * length)
        return [found[number] for number in range(len(texts))]

    def _too_long(self, number: int, content: _Content, characters: int, specials: int, beside: int = 0) -> ShoalError:
        tokens = len(content.ids) + specials + beside
        if content.whole:
            size = f"{tokens} tokens"
        elif tokens > self.max_tokens:
            size = f"more than {tokens} tokens"
        else:
            size = f"{characters} characters, of which {self.max_tokens * _MOST_CHARACTERS_PER_TOKEN} are read"
        return ShoalError(
            Code.INPUT_TOO_LONG,
            f"Input {number} has {size}{' with the query' if beside else ''}, the limit of the model is "
            f"{self.max_tokens} tokens.",
            param="input",
            hint="Shorten the text, split it, or allow truncation.",
        )


def _join(frame: _Frame, first: list[int], second: list[int], room: int, task: Task) -> Row:
    kept = _longest_first(len(first), len(second), room)
    ids: list[int] = []
    types: list[int] = []
    contents = [first[: kept[0]], second[: kept[1]], []]
    for special, special_types, content, content_type in zip(
        frame.parts, frame.types, contents, [*frame.content_types, 0], strict=True
    ):
        ids += special + content
        types += special_types + [content_type] * len(content)
    return Row(ids, task, type_ids=types if any(types) else None)


def _longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """How many tokens of each text of a pair are kept when the longer one is cut first, as tokenizers does."""
    shorter, longer = min(first, second), max(first, second)
    if shorter + longer > room:
        longer = max(shorter, room - shorter)
        if shorter + longer > room:
            shorter = room // 2
            longer = room - shorter
    return (shorter, longer) if first <= second else (longer, shorter)


def _frame(encoding: Encoding, texts: int) -> _Frame:
    """The special tokens that the tokenizer puts around ``texts`` short texts."""
    owners: list[int | None] = encoding.sequence_ids
    bounds = [-1]
    for text in range(texts):
        places = [place for place, owner in enumerate(owners) if owner == text]
        if not places or places != list(range(places[0], places[-1] + 1)):
            raise ShoalError(
                Code.MODEL_UNLOADABLE, "The tokenizer puts special tokens inside of a text; it is not supported."
            )
        bounds += [places[0], places[-1]]
    bounds.append(len(owners))
    gaps = [slice(before + 1, after) for before, after in list(pairwise(bounds))[::2]]
    return _Frame(
        parts=[encoding.ids[gap] for gap in gaps],
        types=[encoding.type_ids[gap] for gap in gaps],
        content_types=[encoding.type_ids[bounds[2 * text + 1]] for text in range(texts)],
    )
