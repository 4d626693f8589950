"""One question to the base model and to the adapter, through the gateway like any other request."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np

from wire.jobs import Task

TIMEOUT_S = 20.0
# a new key reaches the gateway within a second or two
PATIENCE_S = 6.0
PAUSE_S = 0.25
MAX_DOCUMENTS = 20
MAX_CHARS = 4_000
ANSWER_TOKENS = 160


@dataclass(frozen=True, slots=True)
class Scored:
    """One line of an answer: a document or a label, with its score."""

    text: str
    score: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What one model said: ``lines`` or ``text``, or the ``problem``; and what the gateway told of it."""

    model: str
    lines: list[Scored] = field(default_factory=list)
    text: str = ""
    problem: str = ""
    version: str = ""
    milliseconds: float = 0.0
    queue_ms: str = ""
    batch: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """What a person typed: ``text`` is a query, a text or a prompt; ``documents`` are ranked by it."""

    task: Task
    text: str
    documents: list[str]


def question_of(task: str, text: str, documents: str, tasks: Sequence[Task]) -> Question | None:
    """The question of a form, bounded; ``None`` when it asks for nothing or for what the model cannot do."""
    text = text.strip()[:MAX_CHARS]
    found = [line.strip()[:MAX_CHARS] for line in documents.splitlines() if line.strip()][:MAX_DOCUMENTS]
    if task not in tasks or not text or (Task(task) in _WITH_DOCUMENTS and not found):
        return None
    return Question(Task(task), text, found)


def ask_model(url: str, secret: str, model: str, question: Question) -> Answer:
    """The model's answer; never raises for what the gateway or the network does."""
    path, body, read = _REQUESTS[question.task](model, question)
    began = time.monotonic()
    while True:
        asked = time.monotonic()
        try:
            answer = httpx.post(
                f"{url}{path}", json=body, headers={"Authorization": f"Bearer {secret}"}, timeout=TIMEOUT_S
            )
        except httpx.HTTPError as error:
            return Answer(model, problem=f"The gateway at {url} did not answer: {type(error).__name__}.")
        if answer.status_code != 401 or time.monotonic() - began > PATIENCE_S:
            break
        time.sleep(PAUSE_S)
    told = {
        "version": answer.headers.get("x-shoal-version", ""),
        "queue_ms": answer.headers.get("x-shoal-queue-ms", ""),
        "batch": answer.headers.get("x-shoal-batch-size", ""),
        "milliseconds": round((time.monotonic() - asked) * 1000, 1),
    }
    try:
        found = answer.json()
        if answer.status_code != 200:
            return Answer(model, problem=str(found["error"]["message"]), **told)
        lines, text = read(found, question)
    except (ValueError, KeyError, TypeError, IndexError):
        return Answer(model, problem=f"The gateway's answer ({answer.status_code}) cannot be read.", **told)
    return Answer(model, lines=lines, text=text, **told)


Read = Callable[[Any, Question], tuple[list[Scored], str]]
Request = tuple[str, dict[str, Any], Read]


def _embeddings(model: str, question: Question) -> Request:
    def read(found: Any, question: Question) -> tuple[list[Scored], str]:
        rows = sorted(found["data"], key=lambda row: row["index"])
        vectors = np.asarray([row["embedding"] for row in rows], dtype=np.float32)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return _ranked(question.documents, (vectors[1:] @ vectors[0]).tolist()), ""

    return "/v1/embeddings", {"model": model, "input": [question.text, *question.documents]}, read


def _rerank(model: str, question: Question) -> Request:
    def read(found: Any, question: Question) -> tuple[list[Scored], str]:
        lines = [Scored(question.documents[row["index"]], float(row["relevance_score"])) for row in found["results"]]
        return sorted(lines, key=lambda line: -line.score), ""

    return "/v1/rerank", {"model": model, "query": question.text, "documents": question.documents}, read


def _classify(model: str, question: Question) -> Request:
    def read(found: Any, question: Question) -> tuple[list[Scored], str]:
        row = found["data"][0]
        if "entities" in row:
            return [Scored(f"{item['text']} ({item['label']})", float(item["score"])) for item in row["entities"]], ""
        return _ranked(list(row["scores"]), list(row["scores"].values())), ""

    return "/v1/classify", {"model": model, "input": [question.text]}, read


def _chat(model: str, question: Question) -> Request:
    def read(found: Any, question: Question) -> tuple[list[Scored], str]:
        return [], str(found["choices"][0]["message"]["content"] or "")

    messages = [{"role": "user", "content": question.text}]
    return "/v1/chat/completions", {"model": model, "messages": messages, "max_tokens": ANSWER_TOKENS,
                                    "temperature": 0}, read  # fmt: skip


def _ranked(texts: Sequence[str], scores: Sequence[float]) -> list[Scored]:
    lines = [Scored(text, float(score)) for text, score in zip(texts, scores, strict=True)]
    return sorted(lines, key=lambda line: -line.score)


_REQUESTS: dict[Task, Callable[[str, Question], Request]] = {
    Task.EMBEDDINGS: _embeddings,
    Task.RERANK: _rerank,
    Task.CLASSIFY: _classify,
    Task.TOKEN_CLASSIFY: _classify,
    Task.GENERATE: _chat,
}
_WITH_DOCUMENTS = frozenset({Task.EMBEDDINGS, Task.RERANK})
