"""Token classification: labelled spans of a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wire.canonical import HeadHeader
from wire.jobs import ClassifyInputs, Entity, Task, TaskInputs, TokenClassifyOutputs
from workers.models.heads import States, required, run_head
from workers.models.protocol import PreparedInputs, RowOutput, TaskHead
from workers.models.readouts.classify import softmax
from workers.models.readouts.protocol import expect, expect_some
from workers.models.tokens import Span, TextTokenizer

_OUTSIDE = "O"
_STARTS, _ENDS = frozenset("BSU"), frozenset("ESLU")
"""Marks of the BIO, BIOES and BILOU schemes that begin and end an entity."""
_MARKS = _STARTS | _ENDS | {"I"}


class TokenClassifyReadout:
    """Logits of a token classification head per row (tokens, labels), as entities."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer

    def prepare(self, inputs: TaskInputs) -> PreparedInputs:
        wanted = expect(inputs, ClassifyInputs)
        expect_some(wanted.texts, "input")
        return self._tokenizer.prepare(wanted.texts, Task.TOKEN_CLASSIFY, truncate=wanted.truncate, with_spans=True)

    def read(self, states: States, head: TaskHead | None) -> list[RowOutput]:
        logits = run_head(head, states).cpu().numpy()
        lengths = states.mask.sum(dim=1).tolist()
        return [row[:length] for row, length in zip(logits, lengths, strict=True)]

    def finish(
        self, outputs: Sequence[RowOutput], prepared: PreparedInputs, header: HeadHeader | None
    ) -> TokenClassifyOutputs:
        header = required(header)
        entities = [
            find_entities(softmax(logits), header.labels, spans, text)
            for logits, spans, text in zip(outputs, prepared.spans, prepared.texts, strict=True)
        ]
        return TokenClassifyOutputs(entities, header.labels, prepared.tokens, prepared.truncated)


@dataclass(slots=True)
class _Run:
    """Neighbouring tokens of one entity; ``open``: another token may still join."""

    kind: str
    start: int
    end: int
    scores: list[float]
    open: bool


def find_entities(
    probabilities: RowOutput, labels: Sequence[str], spans: Sequence[Span], text: str
) -> list[Entity]:  # fmt: skip
    """Entities from the most likely label of each token (tokens, labels), neighbours of one kind joined.

    ``spans`` are the tokens' characters in ``text``; tokens without any are left out.
    """
    runs: list[_Run] = []
    for row, (start, end) in zip(probabilities, spans, strict=True):
        if start == end:
            continue
        best = int(row.argmax())
        mark, kind = _split(labels[best])
        last = runs[-1] if runs else None
        if last is not None and last.open and last.kind == kind and mark not in _STARTS:
            last.end = end
            last.scores.append(float(row[best]))
            last.open = mark not in _ENDS
        else:
            runs.append(_Run(kind, start, end, [float(row[best])], open=mark not in _ENDS))
    return [_entity(run, text) for run in runs if run.kind != _OUTSIDE]


def _split(label: str) -> tuple[str, str]:
    """(mark, kind) of ``B-PER``; labels without a mark join their like."""
    mark, dash, kind = label.partition("-")
    return (mark, kind) if dash and mark in _MARKS else ("I", label)


def _entity(run: _Run, text: str) -> Entity:
    # some tokenizers count the space before a word into it
    inside = text[run.start : run.end]
    start = run.start + len(inside) - len(inside.lstrip())
    end = run.end - (len(inside) - len(inside.rstrip()))
    return Entity(label=run.kind, score=float(np.mean(run.scores)), start=min(start, end), end=end)
