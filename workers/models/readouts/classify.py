"""Sequence classification: one label, several, or a number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wire.canonical import HeadHeader
from wire.jobs import ClassifyInputs, ClassifyOutputs, Task, TaskInputs
from workers.models.heads import States, required, run_head
from workers.models.protocol import PreparedInputs, RowOutput, TaskHead
from workers.models.readouts.protocol import expect, expect_some
from workers.models.tokens import TextTokenizer

MULTI_LABEL = "multi_label_classification"
REGRESSION = "regression"


class ClassifyReadout:
    """Logits of a sequence classification head per row (labels,), as probabilities."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer

    def prepare(self, inputs: TaskInputs) -> PreparedInputs:
        wanted = expect(inputs, ClassifyInputs)
        expect_some(wanted.texts, "input")
        return self._tokenizer.prepare(wanted.texts, Task.CLASSIFY, truncate=wanted.truncate)

    def read(self, states: States, head: TaskHead | None) -> list[RowOutput]:
        return list(run_head(head, states).cpu().numpy())

    def finish(
        self, outputs: Sequence[RowOutput], prepared: PreparedInputs, header: HeadHeader | None
    ) -> ClassifyOutputs:
        header = required(header)
        logits = np.stack(outputs)
        # one output says yes or no: a softmax over it would always be 1
        separate = header.problem == MULTI_LABEL or len(header.labels) == 1
        if header.problem == REGRESSION:
            scores = logits
        elif separate:
            scores = sigmoid(logits)
        else:
            scores = softmax(logits)
        return ClassifyOutputs(
            labels=header.labels,
            scores=scores.tolist(),
            tokens=prepared.tokens,
            truncated=prepared.truncated,
            multi_label=header.problem == MULTI_LABEL,
        )


def softmax(logits: RowOutput) -> RowOutput:
    """Probabilities over the last dimension."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    found: RowOutput = powers / powers.sum(axis=-1, keepdims=True)
    return found


def sigmoid(logits: RowOutput) -> RowOutput:
    """A probability per number, also for numbers that are far from 0."""
    found: RowOutput = 0.5 * (1.0 + np.tanh(0.5 * logits))
    return found
