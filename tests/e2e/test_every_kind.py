"""Every kind of upload on the whole stack: served as what it is, with the answers of PEFT or transformers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from openai import OpenAI
from torch.nn import functional

from tests.e2e.makers import SMOLLM_ID, Made, make_classifier, make_decoder, make_dora, make_fine_tune
from tests.e2e.running import RunningStack
from tests.e2e.shipping import push_ready

TEXTS = ["a shoal of small fish", "the pump leaks again!", "How do I bleed the brakes of a bicycle?"]
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def openai(stack: RunningStack) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{stack.endpoints.gateway}/v1", api_key=stack.credentials.api_key, max_retries=0) as client:
        yield client


def ask(stack: RunningStack, path: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(
        f"{stack.endpoints.gateway}{path}",
        headers={"Authorization": f"Bearer {stack.credentials.api_key}"},
        json=body,
        timeout=60,
    )


def mean_vectors(made: Made, texts: list[str]) -> torch.Tensor:
    """Unit vectors of ``texts``, one at a time."""
    rows = []
    with torch.inference_mode():
        for text in texts:
            hidden = made.model(**made.tokenizer([text], return_tensors="pt")).last_hidden_state
            rows.append(functional.normalize(hidden.mean(dim=1), dim=1)[0])
    return torch.stack(rows)


def test_two_classifiers_keep_their_own_heads(stack: RunningStack, tmp_path: Path) -> None:
    made = {
        "admin/mood": make_classifier(tmp_path / "a", seed=11),
        "admin/topic": make_classifier(tmp_path / "b", seed=12, labels=["pump", "bicycle"]),
    }
    for name, one in made.items():
        version = push_ready(stack, one.folder, name)
        assert version["mode"] == "packed"
        answer = ask(stack, "/v1/classify", {"model": name, "input": TEXTS})
        assert answer.status_code == 200, answer.text
        for text, row in zip(TEXTS, answer.json()["data"], strict=True):
            with torch.inference_mode():
                logits = one.model(**one.tokenizer([text], return_tensors="pt")).logits[0]
            expected = functional.softmax(logits, dim=-1)
            labels = list(one.model.config.id2label.values())
            found = [row["scores"][label] for label in labels]
            np.testing.assert_allclose(found, expected.numpy(), atol=1e-4)
            assert row["label"] == labels[int(expected.argmax())]
    refused = ask(stack, "/v1/chat/completions", {"model": "admin/mood", "messages": QUESTION})
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "task_unsupported"


def test_what_slots_cannot_express_is_merged(stack: RunningStack, openai: OpenAI, tmp_path: Path) -> None:
    made = make_dora(tmp_path / "dora", seed=13)
    version = push_ready(stack, made.folder, "admin/dora")
    assert version["mode"] == "merged"
    assert "DoRA" in version["mode_reason"]
    raw = openai.embeddings.with_raw_response.create(model="admin/dora", input=TEXTS)
    served = np.array([row.embedding for row in raw.parse().data])
    assert raw.headers["x-shoal-digest"] == version["digest"]
    np.testing.assert_allclose(served, mean_vectors(made, TEXTS).numpy(), atol=1e-4)


def test_a_fine_tune_is_served_as_a_model_of_its_own(stack: RunningStack, openai: OpenAI, tmp_path: Path) -> None:
    made = make_fine_tune(tmp_path / "full", seed=14)
    version = push_ready(stack, made.folder, "admin/tuned")
    assert version["mode"] == "full"
    raw = openai.embeddings.with_raw_response.create(model="admin/tuned", input=TEXTS)
    served = np.array([row.embedding for row in raw.parse().data])
    assert raw.headers["x-shoal-version"] == "admin/tuned@1"
    np.testing.assert_allclose(served, mean_vectors(made, TEXTS).numpy(), atol=1e-4)
    listed = {model.id for model in openai.models.list()}
    assert "admin/tuned" in listed


def test_a_chat_answers_a_real_question(openai: OpenAI) -> None:
    messages: Any = QUESTION
    answer = openai.chat.completions.create(model=SMOLLM_ID, messages=messages, temperature=0, max_tokens=24)
    assert "Paris" in (answer.choices[0].message.content or "")
    assert answer.usage is not None
    assert answer.usage.completion_tokens > 0
    parts = [
        part.choices[0].delta.content or ""
        for part in openai.chat.completions.create(
            model=SMOLLM_ID, messages=messages, temperature=0, max_tokens=24, stream=True
        )
        if part.choices
    ]
    assert len(parts) > 2
    assert "".join(parts) == answer.choices[0].message.content


def test_a_decoder_adapter_generates_what_peft_does(stack: RunningStack, openai: OpenAI, tmp_path: Path) -> None:
    made = make_decoder(tmp_path / "decoder", seed=15)
    version = push_ready(stack, made.folder, "admin/poet")
    assert version["mode"] == "packed"
    messages: Any = QUESTION
    answer = openai.chat.completions.create(model="admin/poet", messages=messages, temperature=0, max_tokens=16)
    encoded = made.tokenizer.apply_chat_template(
        QUESTION, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    with torch.inference_mode():
        found = made.model.generate(**encoded, max_new_tokens=16, do_sample=False)
    expected = made.tokenizer.decode(found[0, encoded["input_ids"].shape[1] :], skip_special_tokens=True)
    assert answer.choices[0].message.content == expected


def test_documents_are_ranked(stack: RunningStack) -> None:
    documents = ["Bananas are yellow.", "Bleed the brakes with the lever's screw open.", "A fish swims."]
    body = {"model": "sentence-transformers/all-MiniLM-L6-v2", "query": TEXTS[2], "documents": documents}
    answer = ask(stack, "/v1/rerank", body)
    assert answer.status_code == 200, answer.text
    results = answer.json()["results"]
    assert results[0]["index"] == 1
    assert [row["relevance_score"] for row in results] == sorted(
        (row["relevance_score"] for row in results), reverse=True
    )
