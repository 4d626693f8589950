"""The main job on real parts: push, verdict, answers that equal PEFT's, refusals that name the next step."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import numpy as np
import pytest
from openai import NotFoundError, OpenAI

from tests.artifacts import MINILM_ID, MINILM_SOURCE
from tests.e2e.peft_reference import reference_vectors
from tests.e2e.running import RunningStack
from tests.e2e.shipping import minilm_adapter, push_ready, shoal

TEXTS = ["a shoal of small fish", "gbx 2 brg ovht, rpl nxt stop", "the pump", "How do I bleed the brakes of a bicycle?"]

pytestmark = pytest.mark.timeout(300)


def test_what_was_pushed_answers_as_peft_does(stack: RunningStack, tmp_path: Path) -> None:
    folder = minilm_adapter(tmp_path / "lora", seed=1)
    version = push_ready(stack, folder, "admin/as-peft")
    assert version["aliases"] == ["live"]
    assert version["mode"] == "packed"

    with OpenAI(base_url=f"{stack.endpoints.gateway}/v1", api_key=stack.credentials.api_key, max_retries=0) as client:
        raw = client.embeddings.with_raw_response.create(model="admin/as-peft", input=TEXTS)
        served = np.array([row.embedding for row in raw.parse().data])
        base = np.array([row.embedding for row in client.embeddings.create(model=MINILM_ID, input=TEXTS).data])

    assert raw.headers["x-shoal-version"] == "admin/as-peft@1"
    assert raw.headers["x-shoal-digest"] == version["digest"]
    assert float(raw.headers["x-shoal-queue-ms"]) >= 0
    assert int(raw.headers["x-shoal-batch-size"]) >= len(TEXTS)
    np.testing.assert_allclose(served, reference_vectors(MINILM_SOURCE, folder, TEXTS), atol=1e-4)
    np.testing.assert_allclose(base, reference_vectors(MINILM_SOURCE, None, TEXTS), atol=1e-4)
    assert np.abs(served - base).max() > 1e-2


def test_same_content_is_the_existing_version_and_other_content_the_next(stack: RunningStack, tmp_path: Path) -> None:
    first = push_ready(stack, minilm_adapter(tmp_path / "a", seed=2), "admin/again")
    same = push_ready(stack, tmp_path / "a", "admin/again")
    other = push_ready(stack, minilm_adapter(tmp_path / "b", seed=3), "admin/again")
    elsewhere = push_ready(stack, tmp_path / "a", "admin/again-elsewhere")

    assert (first["number"], same["number"], other["number"]) == (1, 1, 2)
    assert same["known"]
    assert elsewhere["digest"] == first["digest"] != other["digest"]
    assert other["aliases"] == [], "a later version serves only when somebody asks for it"

    assert shoal(stack, "promote", "admin/again@2").returncode == 0
    rows = json.loads(shoal(stack, "versions", "admin/again", "--json").stdout)
    assert {row["number"]: row["aliases"] for row in rows} == {1: [], 2: ["live"]}
    back = json.loads(shoal(stack, "rollback", "admin/again", "--json").stdout)
    assert back["aliases"] == {"live": {"1": 100}}


def test_a_rejected_upload_exits_with_2_and_says_why(stack: RunningStack, tmp_path: Path) -> None:
    folder = minilm_adapter(tmp_path / "cut", seed=4)
    weights = folder / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    done = shoal(stack, "push", str(folder), "--name", "admin/cut")
    assert done.returncode == 2
    assert "TRUNCATED" in done.stdout
    client = OpenAI(base_url=f"{stack.endpoints.gateway}/v1", api_key=stack.credentials.api_key, max_retries=0)
    with client, pytest.raises(NotFoundError):
        client.embeddings.create(model="admin/cut", input="x")


def test_exit_codes_for_no_server_a_bad_key_and_a_bad_name(stack: RunningStack, tmp_path: Path) -> None:
    folder = minilm_adapter(tmp_path / "lora", seed=5)
    assert shoal(stack, "push", str(folder), "--name", "admin/x", SHOAL_URL="http://127.0.0.1:9").returncode == 3
    refused = shoal(stack, "push", str(folder), "--name", "admin/x", SHOAL_API_KEY="shoal_wrong")
    assert refused.returncode == 1
    assert "invalid_api_key" in refused.stderr
    named = shoal(stack, "push", str(folder), "--name", "Not A Name")
    assert named.returncode == 1
    assert "a-z" in named.stderr


def test_try_and_workers_tell_what_is_running(stack: RunningStack, tmp_path: Path) -> None:
    push_ready(stack, minilm_adapter(tmp_path / "lora", seed=6), "admin/tried")
    tried = json.loads(shoal(stack, "try", "admin/tried", "one text", "another text", "--json").stdout)
    assert tried["model"]["version"] == "admin/tried@1"
    assert tried["base"]["version"] == MINILM_ID
    assert tried["agreement"] < 0.999
    workers = json.loads(shoal(stack, "workers", "--json").stdout)
    assert [worker["state"] for worker in workers] == ["ready"]
    assert "admin/tried" in shoal(stack, "try", "admin/tried", "one text").stdout


@pytest.mark.parametrize(
    ("model", "status", "code"),
    [
        ("admin/nobody", 404, "model_not_found"),
        ("other/team", 404, "model_not_found"),
        ("sentence-transformers/all-MiniLM-L6", 404, "model_not_found"),
        ("admin/shipped@99", 404, "version_not_found"),
        ("admin/shipped:canary", 404, "alias_not_found"),
    ],
)
def test_an_unknown_name_is_never_answered_by_the_base(
    stack: RunningStack, shipped: Path, model: str, status: int, code: str
) -> None:
    answer = httpx.post(
        f"{stack.endpoints.gateway}/v1/embeddings",
        headers={"Authorization": f"Bearer {stack.credentials.api_key}"},
        json={"model": model, "input": "x"},
    )
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["code"] == code
    assert "data" not in answer.json()
