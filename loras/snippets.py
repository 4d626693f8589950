"""Commands and programs that a page offers to copy, filled with the reader's own names and addresses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Snippet:
    """One text to copy; ``key`` is part of its element id."""

    key: str
    label: str
    text: str


def usage_snippets(model: str, gateway_url: str) -> list[Snippet]:
    """How to ask ``model`` (an address such as ``team/adapter``) for embeddings."""
    curl = f"""curl {gateway_url}/v1/embeddings \\
  -H "Authorization: Bearer $SHOAL_API_KEY" \\
  -H "Content-Type: application/json" \\
  -d '{{"model": "{model}", "input": ["How do I bleed the brakes?"]}}'"""
    openai = f"""import os
from openai import OpenAI

client = OpenAI(base_url="{gateway_url}/v1", api_key=os.environ["SHOAL_API_KEY"])
answer = client.embeddings.create(
    model="{model}",
    input=["How do I bleed the brakes?"],
)
print(len(answer.data[0].embedding))"""
    python = f"""import os
import httpx

answer = httpx.post(
    "{gateway_url}/v1/embeddings",
    headers={{"Authorization": f"Bearer {{os.environ['SHOAL_API_KEY']}}"}},
    json={{"model": "{model}", "input": ["How do I bleed the brakes?"]}},
)
answer.raise_for_status()
print(answer.headers["x-shoal-version"], len(answer.json()["data"][0]["embedding"]))"""
    shoal = f'shoal try {model} "How do I bleed the brakes?" "Where is the brake fluid?"'
    return [
        Snippet("openai", "OpenAI client", openai),
        Snippet("curl", "curl", curl),
        Snippet("python", "Python", python),
        Snippet("shoal", "shoal", shoal),
    ]


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
