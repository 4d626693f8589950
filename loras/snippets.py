"""Commands and programs that a page offers to copy, filled with the reader's own names and addresses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wire.jobs import Task

TEXT = "How do I bleed the brakes?"


@dataclass(frozen=True, slots=True)
class Snippet:
    """One text to copy; ``key`` is part of its element id."""

    key: str
    label: str
    text: str


@dataclass(frozen=True, slots=True)
class _Call:
    """How a task is asked: path, body beside the model, how Python reads the answer, and OpenAI's client."""

    path: str
    body: dict[str, Any]
    read: str
    openai: str = ""
    openai_read: str = ""


_CALLS: dict[Task, _Call] = {
    Task.EMBEDDINGS: _Call(
        "/v1/embeddings", {"input": [TEXT]}, 'len(answer.json()["data"][0]["embedding"])',
        f'client.embeddings.create(\n    model="{{model}}",\n    input=["{TEXT}"],\n)', "len(answer.data[0].embedding)",
    ),
    Task.RERANK: _Call(
        "/v1/rerank", {"query": TEXT, "documents": ["Where the fluid goes", "Opening hours"]},
        'answer.json()["results"][0]',
    ),
    Task.CLASSIFY: _Call("/v1/classify", {"input": [TEXT]}, 'answer.json()["data"][0]["label"]'),
    Task.TOKEN_CLASSIFY: _Call("/v1/classify", {"input": [TEXT]}, 'answer.json()["data"][0]["entities"]'),
    Task.GENERATE: _Call(
        "/v1/chat/completions", {"messages": [{"role": "user", "content": TEXT}]},
        'answer.json()["choices"][0]["message"]["content"]',
        'client.chat.completions.create(\n    model="{model}",\n'
        f'    messages=[{{{{"role": "user", "content": "{TEXT}"}}}}],\n)',
        "answer.choices[0].message.content",
    ),
}  # fmt: skip
# the order in which a model with several tasks is shown
_FIRST = (Task.GENERATE, Task.CLASSIFY, Task.TOKEN_CLASSIFY, Task.EMBEDDINGS, Task.RERANK)


def usage_snippets(model: str, gateway_url: str, tasks: Sequence[Task] = ()) -> list[Snippet]:
    """How to ask ``model`` (an address such as ``team/adapter``) for the first of its ``tasks``: embeddings when none
    is known."""
    task = next((task for task in _FIRST if task in tasks), Task.EMBEDDINGS)
    call = _CALLS[task]
    body = json.dumps({"model": model, **call.body})
    curl = f"""curl {gateway_url}{call.path} \\
  -H "Authorization: Bearer $SHOAL_API_KEY" \\
  -H "Content-Type: application/json" \\
  -d '{body}'"""
    python = f"""import os
import httpx

answer = httpx.post(
    "{gateway_url}{call.path}",
    headers={{"Authorization": f"Bearer {{os.environ['SHOAL_API_KEY']}}"}},
    json={body},
)
answer.raise_for_status()
print(answer.headers["x-shoal-version"], {call.read})"""
    found = [Snippet("curl", "curl", curl), Snippet("python", "Python", python)]
    if call.openai:
        openai = f"""import os
from openai import OpenAI

client = OpenAI(
    base_url="{gateway_url}/v1",
    api_key=os.environ["SHOAL_API_KEY"],
)
answer = {call.openai.format(model=model)}
print({call.openai_read})"""
        found.insert(0, Snippet("openai", "OpenAI client", openai))
    if task is Task.EMBEDDINGS:
        found.append(Snippet("shoal", "shoal", f'shoal try {model} "{TEXT}" "Where is the brake fluid?"'))
    return found


def curl_of(snippets: Sequence[Snippet]) -> Snippet:
    """The command among ``snippets``."""
    return next(snippet for snippet in snippets if snippet.key == "curl")


def upload_snippets(full_name: str, web_url: str) -> list[Snippet]:
    """How to upload to ``full_name`` from a terminal or from CI."""
    shoal = f"""export SHOAL_URL={web_url}
export SHOAL_API_KEY=shoal_…
shoal push ./my-lora \\
  --name {full_name}"""
    curl = f"""curl {web_url}/api/v1/adapters/ \\
  -H "Authorization: Bearer $SHOAL_API_KEY" \\
  -F name={full_name} \\
  -F "files[]=@adapter_config.json" \\
  -F "files[]=@adapter_model.safetensors\""""
    return [Snippet("push", "shoal", shoal), Snippet("post", "curl", curl)]
