"""Rerank and classification: order, labels, entities, and refusals."""

from __future__ import annotations

import msgspec

from tests.integration.gateway.stand import BASE, Stand, result_of
from tests.integration.gateway.waiting import until
from wire.errors import Code
from wire.jobs import ClassifyOutputs, RerankOutputs, Task
from wire.registry import KeyRecord, Scope

DOCUMENTS = ["aa", {"text": "aaaa", "title": "ignored"}, "a", "bbbb"]


async def test_documents_come_by_relevance(stand: Stand) -> None:
    answer = await stand.post("rerank", model=BASE, query="q", documents=DOCUMENTS, return_documents=True)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert [row["index"] for row in body["results"]] == [1, 3, 0, 2]
    assert [row["relevance_score"] for row in body["results"]] == [0.4, 0.4, 0.2, 0.1]
    assert body["results"][0]["document"] == {"text": "aaaa"}
    assert body["usage"]["total_tokens"] == 20
    assert answer.headers["x-shoal-version"] == BASE
    top = (await stand.post("rerank", model=BASE, query="q", documents=DOCUMENTS, top_n=2)).json()
    assert top["results"] == [{"index": 1, "relevance_score": 0.4}, {"index": 3, "relevance_score": 0.4}]
    more = (await stand.post("rerank", model=BASE, query="q", documents=DOCUMENTS, top_n=99)).json()
    assert len(more["results"]) == 4


async def test_long_lists_are_shared_by_several_jobs(stand: Stand) -> None:
    documents = ["x" * (number % 90 + 1) for number in range(600)]
    answer = (await stand.post("rerank", model=BASE, query="q", documents=documents)).json()
    assert [row["index"] for row in answer["results"]] == sorted(range(600), key=lambda at: -len(documents[at]))
    assert len(stand.consumer.jobs) == 3
    assert {job.task for job in stand.consumer.jobs} == {Task.RERANK}


async def test_labels_and_scores(stand: Stand) -> None:
    answer = await stand.post("classify", model="acme/tags", input=["a good day", "no"])
    assert answer.status_code == 200, answer.text
    assert answer.json()["data"] == [
        {"index": 0, "label": "good", "score": 0.75, "scores": {"bad": 0.25, "good": 0.75}},
        {"index": 1, "label": "bad", "score": 0.75, "scores": {"bad": 0.75, "good": 0.25}},
    ]
    assert answer.json()["object"] == "list"
    assert "multi_label" not in answer.json()
    job = stand.consumer.jobs[-1]
    assert (job.task, job.model, job.adapter_digest) == (Task.CLASSIFY, BASE, "d" * 64)


async def test_entities_with_their_texts(stand: Stand) -> None:
    answer = await stand.post("classify", model="acme/tags:spans", input=["Zoë😀 sleeps", "ok"])
    assert [row["entities"] for row in answer.json()["data"]] == [
        [{"label": "WORD", "score": 0.5, "start": 0, "end": 4, "text": "Zoë😀"}],
        [{"label": "WORD", "score": 0.5, "start": 0, "end": 2, "text": "ok"}],
    ]
    assert stand.consumer.jobs[-1].task is Task.TOKEN_CLASSIFY


async def test_versions_with_weights_of_their_own_have_subjects_of_their_own(stand: Stand) -> None:
    answer = await stand.post("classify", model="acme/tags:whole", input="good")
    assert answer.json()["data"][0]["label"] == "good"
    assert answer.headers["x-shoal-version"] == "acme/tags@3"
    assert answer.headers["x-shoal-digest"] == "f" * 64
    job = stand.consumer.jobs[-1]
    assert (job.model, job.model_digest, job.adapter_digest) == ("acme/tags@3", "f" * 64, None)


BODIES: list[tuple[str, dict[str, object], str, str | None]] = [
    ("rerank", {"documents": ["a"]}, "invalid_request", "query"),
    ("rerank", {"query": "", "documents": ["a"]}, "input_empty", "query"),
    ("rerank", {"query": "q", "documents": []}, "input_empty", "documents"),
    ("rerank", {"query": "q", "documents": ["a", ""]}, "input_empty", "documents[1]"),
    ("rerank", {"query": "q", "documents": ["a", {"text": ""}]}, "input_empty", "documents[1].text"),
    ("rerank", {"query": "q", "documents": [{"title": "a"}]}, "invalid_request", "documents[0]"),
    ("rerank", {"query": "q", "documents": ["a"] * 2049}, "too_many_inputs", "documents"),
    ("rerank", {"query": "q", "documents": ["a", 5]}, "invalid_request", "documents[1]"),
    ("rerank", {"query": "q", "documents": ["x" * 300_000]}, "input_too_long", "documents[0]"),
    ("rerank", {"query": "q", "documents": ["a"], "top_n": 0}, "invalid_request", "top_n"),
    ("rerank", {"query": "q", "documents": ["a"], "max_chunks_per_doc": 2}, "unsupported_parameter",
     "max_chunks_per_doc"),
    ("rerank", {"query": "q", "documents": ["a"], "model": "acme/tags"}, "task_unsupported", "model"),
    ("classify", {"input": []}, "input_empty", "input"),
    ("classify", {"input": ["a", ""]}, "input_empty", "input[1]"),
    ("classify", {"input": [1]}, "unsupported_parameter", "input"),
    ("classify", {"inputs": "x"}, "unsupported_parameter", "inputs"),
    ("classify", {}, "invalid_request", "input"),
    ("classify", {"input": "a"}, "task_unsupported", "model"),
]  # fmt: skip


async def test_bad_bodies_are_refused_and_never_queued(stand: Stand) -> None:
    for path, body, code, param in BODIES:
        answer = await stand.post(path, **{"model": BASE} | body)
        assert answer.status_code == 400, (path, body, answer.text)
        error = answer.json()["error"]
        assert (error["code"], error["param"]) == (code, param), (path, body, error)
    assert stand.consumer.jobs == []


async def test_answers_of_wrong_size_are_never_given_out(stand: Stand) -> None:
    stand.consumer.respond = lambda job, inputs: [result_of(job, RerankOutputs(scores=[0.5], tokens=1))]
    assert (await stand.post("rerank", model=BASE, query="q", documents=["a", "b"])).status_code == 500
    crooked = ClassifyOutputs(labels=["a", "b"], scores=[[0.5]], tokens=1)
    stand.consumer.respond = lambda job, inputs: [result_of(job, crooked)]
    answer = await stand.post("classify", model="acme/tags", input="x")
    assert answer.json()["error"]["code"] == Code.INTERNAL


async def test_a_version_whose_record_is_away_is_told_truthfully(stand: Stand) -> None:
    records = stand.gateway.plane().models.records
    record = records.pop("acme/tags@3")
    answer = await stand.post("classify", model="acme/tags@3", input="x")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_unloadable")
    records["acme/tags@3"] = msgspec.structs.replace(record, digest="0" * 64)
    assert (await stand.post("classify", model="acme/tags@3", input="x")).status_code == 503
    await stand.put_key("theirs", KeyRecord(id="o", team="other", scopes=[Scope.INFER]))
    hidden = await stand.client.post(
        "/v1/classify", json={"model": "acme/tags@3", "input": "x"}, headers={"authorization": "Bearer theirs"}
    )
    assert hidden.json()["error"]["code"] == "model_not_found"
    assert "acme/" not in hidden.json()["error"]["hint"]
    await until(lambda: stand.gateway.limits.in_flight == 0)
