"""Metrics of evaluations. Pure functions; every value is between 0 and 1 and larger is better."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from loras.evaluation.rows import EvaluationKind

# the figure that decides whether a version is better
PRIMARY: dict[EvaluationKind, str] = {
    EvaluationKind.RETRIEVAL: "mrr",
    EvaluationKind.CLASSIFICATION: "macro_f1",
    EvaluationKind.GENERATION: "exact_match",
}


def retrieval(queries: NDArray[np.float32], documents: NDArray[np.float32], wanted: Sequence[int]) -> dict[str, float]:
    """Recall@1 and mean reciprocal rank by cosine over all documents.

    ``queries`` (n, d), ``documents`` (m, d); ``wanted[i]`` is the row of the document that answers query ``i``. Ties
    count against it, so that equal vectors for everything do not look like success.
    """
    scores = _unit(queries) @ _unit(documents).T
    own = scores[np.arange(len(wanted)), list(wanted)]
    ranks = (scores >= own[:, None] - 1e-7).sum(axis=1)
    return {"recall_at_1": round(float(np.mean(ranks == 1)), 4), "mrr": round(float(np.mean(1.0 / ranks)), 4)}


def classification(expected: Sequence[str], predicted: Sequence[str]) -> dict[str, float]:
    """Accuracy, and the mean of F1 over the labels that are expected somewhere."""
    pairs = list(zip(expected, predicted, strict=True))
    scores = []
    for label in sorted(set(expected)):
        both = sum(e == label and p == label for e, p in pairs)
        either = sum(e == label for e, _ in pairs) + sum(p == label for _, p in pairs)
        scores.append(2 * both / either if either else 0.0)
    accuracy = sum(e == p for e, p in pairs) / len(pairs)
    return {"accuracy": round(accuracy, 4), "macro_f1": round(sum(scores) / len(scores), 4)}


def exact_match(expected: Sequence[str], answered: Sequence[str]) -> dict[str, float]:
    """Share of answers that are the expected text, apart from case and white space."""
    same = [" ".join(e.split()).casefold() == " ".join(a.split()).casefold()
            for e, a in zip(expected, answered, strict=True)]  # fmt: skip
    return {"exact_match": round(sum(same) / len(same), 4)}


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: NDArray[np.float32] = vectors / np.maximum(lengths, 1e-12)
    return unit
