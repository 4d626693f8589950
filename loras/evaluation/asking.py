"""The gateway as an evaluation asks it: a client with a deadline, and one function for each kind of rows."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from loras.evaluation import metrics
from loras.evaluation.rows import EvaluationKind, EvaluationRows

BATCH_TEXTS = 32
ANSWER_TOKENS = 128
PAUSE_S = 0.5
# what a short wait may cure: the registry's mirror, a model on its way into memory, a full queue
_PASSING = frozenset({401, 404, 409, 429, 503})


class CannotMeasure(Exception):
    """This model cannot be asked these rows; the message says why."""


@dataclass(slots=True)
class GatewayClient:
    """Requests with one key until ``deadline`` (``time.monotonic``). ``patience_until`` is how long an answer that may
    pass is waited for."""

    url: str
    secret: str
    deadline: float
    patience_until: float

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The JSON answer. Raises ``CannotMeasure``."""
        headers = {"Authorization": f"Bearer {self.secret}"}
        while True:
            left = self.deadline - time.monotonic()
            if left <= 0:
                raise CannotMeasure("the time for this evaluation ran out")
            try:
                answer = httpx.post(f"{self.url}{path}", json=body, headers=headers, timeout=min(60.0, left))
                if answer.status_code == 200:
                    return answer.json()
                problem, passing = _told(answer), answer.status_code in _PASSING
            except (httpx.HTTPError, ValueError) as error:
                problem, passing = f"the gateway at {self.url} did not answer: {type(error).__name__}", True
            if not passing or time.monotonic() >= self.patience_until:
                raise CannotMeasure(problem)
            time.sleep(PAUSE_S)


def measure(client: GatewayClient, model: str, rows: EvaluationRows) -> dict[str, float]:
    """Metrics of ``model`` on ``rows``. Raises ``CannotMeasure``."""
    firsts, seconds = [first for first, _ in rows.pairs], [second for _, second in rows.pairs]
    if rows.kind is EvaluationKind.RETRIEVAL:
        documents = list(dict.fromkeys(seconds))
        place = {text: index for index, text in enumerate(documents)}
        vectors = _embed(client, model, [*firsts, *documents])
        return metrics.retrieval(vectors[: len(firsts)], vectors[len(firsts) :], [place[text] for text in seconds])
    if rows.kind is EvaluationKind.CLASSIFICATION:
        return metrics.classification(seconds, _classify(client, model, firsts))
    return metrics.exact_match(seconds, [_answer(client, model, prompt) for prompt in firsts])


def _embed(client: GatewayClient, model: str, texts: list[str]) -> NDArray[np.float32]:
    found: list[list[float]] = []
    for start in range(0, len(texts), BATCH_TEXTS):
        answer = client.post("/v1/embeddings", {"model": model, "input": texts[start : start + BATCH_TEXTS]})
        found += [row["embedding"] for row in sorted(answer["data"], key=lambda row: row["index"])]
    return np.asarray(found, dtype=np.float32)


def _classify(client: GatewayClient, model: str, texts: list[str]) -> list[str]:
    found: list[str] = []
    for start in range(0, len(texts), BATCH_TEXTS):
        answer = client.post("/v1/classify", {"model": model, "input": texts[start : start + BATCH_TEXTS]})
        found += [str(row["label"]) for row in answer["data"]]
    return found


def _answer(client: GatewayClient, model: str, prompt: str) -> str:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "max_tokens": ANSWER_TOKENS,
    }
    answer = client.post("/v1/chat/completions", body)
    return str(answer["choices"][0]["message"]["content"] or "")


def _told(answer: httpx.Response) -> str:
    try:
        error = answer.json()["error"]
        return f"{error['message']} ({error['code']})"
    except (ValueError, KeyError, TypeError):
        return f"the gateway answered {answer.status_code}"
