"""JSON of classification answers."""

from __future__ import annotations

import msgspec

from gateway.answers import encoder
from wire.jobs import ClassifyOutputs, TokenClassifyOutputs


class Labelled(msgspec.Struct, frozen=True):
    """The most likely label of a text, its score, and the scores of all labels."""

    index: int
    label: str
    score: float
    scores: dict[str, float]


class Span(msgspec.Struct, frozen=True):
    """An entity; ``start`` and ``end`` count characters (Unicode code points) of the text."""

    label: str
    score: float
    start: int
    end: int
    text: str


class Tagged(msgspec.Struct, frozen=True):
    """The entities of a text in order of their start."""

    index: int
    entities: list[Span]


class LabelUsage(msgspec.Struct, frozen=True):
    """Tokens that the model read."""

    prompt_tokens: int
    total_tokens: int


class Labels(msgspec.Struct, frozen=True, omit_defaults=True):
    """Rows of a classifier. ``multi_label``: scores are independent of each other, several labels may be right."""

    data: list[Labelled] | list[Tagged]
    model: str
    usage: LabelUsage
    object: str
    multi_label: bool = False


def labels_json(parts: list[ClassifyOutputs], tokens: int, *, model: str) -> bytes:
    """The body of a sequence classifier's answer."""
    rows: list[Labelled] = []
    for outputs in parts:
        for scores in outputs.scores:
            best = max(range(len(scores)), key=scores.__getitem__)
            by_label = dict(zip(outputs.labels, scores, strict=True))
            rows.append(Labelled(len(rows), outputs.labels[best], scores[best], by_label))
    multi_label = any(outputs.multi_label for outputs in parts)
    return encoder.encode(Labels(rows, model, LabelUsage(tokens, tokens), "list", multi_label))


def entities_json(texts: list[str], parts: list[TokenClassifyOutputs], tokens: int, *, model: str) -> bytes:
    """The body of a token classifier's answer."""
    spans = (entities for outputs in parts for entities in outputs.entities)
    rows = [
        Tagged(
            index,
            [
                Span(entity.label, entity.score, entity.start, entity.end, text[entity.start : entity.end])
                for entity in entities
            ],
        )
        for index, (text, entities) in enumerate(zip(texts, spans, strict=True))
    ]
    return encoder.encode(Labels(rows, model, LabelUsage(tokens, tokens), "list"))
