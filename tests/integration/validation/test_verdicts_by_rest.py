"""Verdicts as people get them: each kind of upload by REST, judged by the real processes."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from safetensors.numpy import load, save

from tests.integration.controlplane.adapters import lora_files
from tests.integration.controlplane.site import MINILM, Site, running_site, until

pytestmark = pytest.mark.timeout(400)
WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
QUERY = "base_model.model.encoder.layer.0.attention.self.query"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 600000\n"
Files = dict[str, bytes]


@dataclass(frozen=True)
class Case:
    """An upload and what is said of it: the state it ends in, a code among its rows, words in that row."""

    files: Callable[[], Files]
    state: str
    code: str
    words: tuple[str, ...] = ()
    wishes: dict[str, str] = field(default_factory=dict)


def configured(seed: int = 1, **changes: Any) -> Files:
    files = lora_files(seed)
    config = json.loads(files[CONFIG]) | changes
    return files | {CONFIG: json.dumps(config).encode()}


def changed(change: Callable[[dict[str, Any]], object], **settings: Any) -> Files:
    files = configured(**settings)
    tensors = dict(load(files[WEIGHTS]))
    change(tensors)
    return files | {WEIGHTS: save(tensors)}


def zipped(files: Files, *, name: str = "upload.zip") -> Files:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry, data in files.items():
            archive.writestr(entry, data)
    return {name: out.getvalue()}


def inside(folder: str, files: Files) -> Files:
    return {f"{folder}/{name}": data for name, data in files.items()}


def renamed(old: str, new: str) -> Callable[[dict[str, Any]], None]:
    def change(tensors: dict[str, Any]) -> None:
        for name in list(tensors):
            tensors[name.replace(old, new)] = tensors.pop(name)

    return change


class Runs:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("echo executed",)


def whole_model(**config: Any) -> Files:
    weights = save({"encoder.layer.0.attention.self.query.weight": np.ones((4, 4), np.float32)})
    plain = {"model_type": "bert", "architectures": ["BertModel"], "hidden_size": 4}
    return {"model.safetensors": weights, "config.json": json.dumps(plain | config).encode()}


def put(name: str, array: Any) -> Callable[[dict[str, Any]], None]:
    return lambda tensors: tensors.__setitem__(name, array)


_LORA_A, _LORA_B = f"{QUERY}.lora_A.weight", f"{QUERY}.lora_B.weight"
CASES = {
    "zip-with-junk": Case(
        lambda: zipped(inside("run", lora_files(11)) | {"__MACOSX/._x": b"x", "run/optimizer.pt": b"x"}),
        "ready", "FILES_IGNORED", ("optimizer.pt",),
    ),
    "cut": Case(lambda: lora_files(2) | {WEIGHTS: lora_files(2)[WEIGHTS][:-1]}, "rejected", "TRUNCATED", ("one has",)),
    "header": Case(lambda: lora_files(3) | {WEIGHTS: b"\0" * 7 + b"\x80{}"}, "rejected", "HEADER_INVALID", ("9223",)),
    "pointer": Case(lambda: lora_files(4) | {WEIGHTS: POINTER}, "rejected", "LFS_POINTER", (WEIGHTS,)),
    "pickle": Case(
        lambda: {CONFIG: lora_files(5)[CONFIG], "adapter_model.bin": pickle.dumps(Runs())},
        "rejected", "PICKLE_UNSAFE", ("posix.system",),
    ),
    "traversal": Case(lambda: zipped({"../../up": b"x"}), "rejected", "ARCHIVE_UNSAFE", ("../../up",)),
    "bomb": Case(lambda: zipped({WEIGHTS: bytes(64 << 20)}), "rejected", "ARCHIVE_TOO_LARGE", ("200:1",)),
    "rar": Case(lambda: {"a.zip": b"Rar!\x1a\x07\x01\x00" + b"x" * 99}, "rejected", "ARCHIVE_UNSUPPORTED", ("rar",)),
    "checkpoints": Case(
        lambda: zipped(inside("checkpoint-5", lora_files(21)) | inside("checkpoint-10", lora_files(22))),
        "needs_input", "SEVERAL_ADAPTERS", ("checkpoint-5, checkpoint-10",),
    ),
    "no-base": Case(lambda: lora_files(6, base=None), "needs_input", "BASE_MODEL_UNKNOWN", ("names no base",)),
    "model-or-adapter": Case(
        lambda: whole_model() | {CONFIG: lora_files(1)[CONFIG]}, "needs_input", "FULL_MODEL", ("model.safetensors",)
    ),
    "ia3": Case(lambda: configured(peft_type="IA3"), "rejected", "TYPE_UNSUPPORTED", ("IA3",)),
    "kohya": Case(
        lambda: {"lora.safetensors": save({"lora_unet_a.lora_down.weight": np.ones((4, 4), np.float32)})},
        "rejected", "FORMAT_KOHYA", ("lora_unet_a",),
    ),
    "gguf": Case(lambda: {"adapter.gguf": b"GGUF" + b"\0" * 60}, "rejected", "FORMAT_GGUF", ("adapter.gguf",)),
    "not-json": Case(lambda: lora_files(7) | {CONFIG: b'{"r": 4'}, "rejected", "CONFIG_INVALID", (CONFIG,)),
    "nan": Case(
        lambda: changed(put(_LORA_B, np.full((384, 4), np.nan, np.float32))), "rejected", "NONFINITE", (_LORA_B, "1536")
    ),
    "half": Case(lambda: changed(lambda tensors: tensors.pop(_LORA_B)), "rejected", "UNPAIRED", ("only lora_A",)),
    "rank": Case(lambda: configured(r=8), "rejected", "RANK_CONFLICT", ("rank 4", "says 8")),
    "sibling": Case(
        lambda: changed(put(_LORA_A, np.ones((4, 768), np.float32))), "rejected", "SHAPE_MISMATCH", ("4×768", "384")
    ),
    "inert": Case(
        lambda: changed(renamed("encoder.layer", "model.layers")), "rejected", "ADAPTER_INERT", ("None of 4", MINILM)
    ),
    "no-head": Case(lambda: configured(task_type="SEQ_CLS"), "rejected", "HEAD_MISSING", ("classifier.weight",)),
    "other-task": Case(lambda: configured(task_type="CAUSAL_LM"), "rejected", "TASK_MISMATCH", ("CAUSAL_LM", MINILM)),
    "dora": Case(
        lambda: changed(put(f"{QUERY}.lora_magnitude_vector", np.ones(384, np.float32))),
        "rejected", "UNDECLARED_DORA", ("1 DoRA", "use_dora"),
    ),
    "tokens": Case(
        lambda: changed(put("base_model.model.embeddings.word_embeddings.weight", np.ones((30524, 384), np.float16)))
        | {"added_tokens.json": b'{"<tool>": 30522, "<end>": 30523}'},
        "rejected", "VOCAB_RESIZED", ("'<tool>' (30522)", "30524×384"),
    ),
    "code": Case(
        lambda: whole_model(auto_map={"AutoModel": "mine.Mine"}), "rejected", "CUSTOM_CODE", ("auto_map",)
    ),
    "family": Case(lambda: whole_model(model_type="novel"), "rejected", "ARCHITECTURE_UNSUPPORTED", ("novel",)),
    "announced": Case(lambda: lora_files(8), "rejected", "FILE_MISSING", ("kind full",), {"kind": "full"}),
}  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_site(tmp_path_factory.mktemp("site"), SHOAL_UPLOAD_MAX_BYTES=str(64 << 20)) as running:
        running.start_celery()
        yield running


@pytest.fixture(scope="module")
def api(site: Site) -> Iterator[httpx.Client]:
    with site.api() as client:
        yield client


def push(api: httpx.Client, name: str, files: Files, wishes: dict[str, str]) -> str:
    """The address of the new version."""
    alone = len(files) == 1 and not next(iter(files)).endswith(".json")
    sent = [("file" if alone else "files[]", (path, data)) for path, data in files.items()]
    paths = {} if alone else {"paths[]": list(files)}
    answer = api.post("adapters/", data={"name": f"admin/{name}"} | wishes | paths, files=sent)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["url"])


def decided(api: httpx.Client, url: str) -> dict[str, Any]:
    """The version once it is judged."""

    def look() -> dict[str, Any] | None:
        answer = api.get(url)
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body if body["state"] not in ("receiving", "validating") else None

    found: dict[str, Any] = until(look, timeout_s=240, what=f"a verdict on {url}")
    return found


@pytest.fixture(scope="module")
def addresses(api: httpx.Client) -> dict[str, str]:
    """Every case is sent before the first verdict is read, so that they are judged side by side."""
    return {name: push(api, f"case-{name}", case.files(), case.wishes) for name, case in CASES.items()}


@pytest.fixture(scope="module")
def judged(api: httpx.Client, addresses: dict[str, str]) -> dict[str, dict[str, Any]]:
    """The first verdict on each case, read before any question is answered."""
    return {name: decided(api, url) for name, url in addresses.items()}


@pytest.mark.parametrize("name", list(CASES))
def test_verdict(judged: dict[str, dict[str, Any]], name: str) -> None:
    case, version = CASES[name], judged[name]
    rows = version["report"]["rows"]
    assert version["state"] == case.state, rows
    row = next((row for row in rows if row["code"] == case.code), None)
    assert row is not None, rows
    assert row["todo"]
    text = row["found"] + row["todo"]
    assert all(words in text for words in case.words), row
    everything = json.dumps(version)
    assert "Traceback" not in everything
    assert "/validation/" not in everything, "a path of this machine is told"


@pytest.mark.parametrize(
    ("name", "field", "value", "code"),
    [
        ("checkpoints", "choice", "checkpoint-10", "FILES_IGNORED"),
        ("no-base", "base_model", MINILM, "PROBE_PASSED"),
        ("model-or-adapter", "kind", "lora", "FULL_MODEL"),
    ],
)
def test_answers(
    api: httpx.Client,
    addresses: dict[str, str],
    judged: dict[str, dict[str, Any]],
    name: str,
    field: str,
    value: str,
    code: str,
) -> None:
    question = judged[name]["report"]["question"]
    assert question["field"] == field
    assert value in question["choices"]
    answer = api.post(f"{addresses[name]}answer/", json={"field": field, "value": value})
    assert answer.status_code == 202, answer.text
    version = decided(api, addresses[name])
    assert code in {row["code"] for row in version["report"]["rows"]}, version["report"]["rows"]
    assert version["state"] == ("rejected" if code == "FULL_MODEL" else "ready")


def test_the_site_is_healthy_afterwards(site: Site, api: httpx.Client, addresses: dict[str, str]) -> None:
    for url in addresses.values():
        decided(api, url)
    version = decided(api, push(api, "afterwards", lora_files(99), {}))
    assert version["state"] == "ready"
    assert "PROBE_PASSED" in {row["code"] for row in version["report"]["rows"]}
    logs = "".join(path.read_text() for path in Path(site.home).glob("*.log"))
    assert "Traceback" not in logs, logs[logs.index("Traceback") - 500 :][:3000]
    until(lambda: not list((site.home / "validation").iterdir()), what="the removal of every work directory")
