"""Builds uploads as people send them: LoRA folders for two tiny bases, and every way to spoil them."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from loras.validation.pipeline import examine
from wire.jobs import Task
from wire.manifest import HeadTensor, Manifest, ModuleShape, TaskHead
from wire.reports import Finding, Outcome, Row
from wire.validation import ArchiveLimits, SandboxReply, UploadedFile, ValidationRequest

HIDDEN = 64
ENCODER = "tiny/encoder"
DECODER = "tiny/decoder"
PREFIX = "base_model.model."
_ITEM = {"F32": "<f4", "F16": "<f2", "I8": "i1", "F64": "<f8"}


def _linear(path: str, outputs: int, inputs: int) -> ModuleShape:
    return ModuleShape(path=path, kind="linear", weight=[outputs, inputs], dtype="float32", bias=True)


def encoder_manifest(model_id: str = ENCODER, hidden: int = HIDDEN, layers: int = 2) -> Manifest:
    """A BERT-like encoder as the worker package would describe it."""
    modules = [
        ModuleShape("embeddings.word_embeddings", "embedding", [100, hidden], "float32"),
        ModuleShape("embeddings.LayerNorm", "norm", [hidden], "float32", True),
    ]
    for number in range(layers):
        layer = f"encoder.layer.{number}"
        modules += [_linear(f"{layer}.attention.self.{name}", hidden, hidden) for name in ("query", "key", "value")]
        modules.append(_linear(f"{layer}.attention.output.dense", hidden, hidden))
        modules.append(_linear(f"{layer}.intermediate.dense", 4 * hidden, hidden))
        modules.append(_linear(f"{layer}.output.dense", hidden, 4 * hidden))
    head = [HeadTensor("classifier.weight", [-1, hidden]), HeadTensor("classifier.bias", [-1])]
    heads = [TaskHead(task, "bert", head) for task in (Task.CLASSIFY, Task.TOKEN_CLASSIFY)]
    return _manifest(model_id, "bert", "BertModel", [Task.EMBEDDINGS, Task.RERANK], modules, hidden, heads)


def decoder_manifest() -> Manifest:
    """A Llama-like decoder."""
    modules = [ModuleShape("model.embed_tokens", "embedding", [100, HIDDEN], "float32")]
    for number in range(2):
        layer = f"model.layers.{number}"
        modules += [_linear(f"{layer}.self_attn.{name}", HIDDEN, HIDDEN) for name in ("q_proj", "o_proj")]
        modules += [_linear(f"{layer}.self_attn.{name}", 16, HIDDEN) for name in ("k_proj", "v_proj")]
        modules += [_linear(f"{layer}.mlp.{name}", 128, HIDDEN) for name in ("gate_proj", "up_proj")]
        modules.append(_linear(f"{layer}.mlp.down_proj", HIDDEN, 128))
    modules.append(_linear("lm_head", 100, HIDDEN))
    heads = [TaskHead(Task.CLASSIFY, "model", [HeadTensor("score.weight", [-1, HIDDEN])])]
    return _manifest(DECODER, "llama", "LlamaForCausalLM", [Task.GENERATE], modules, None, heads)


def _manifest(
    model_id: str,
    family: str,
    architecture: str,
    tasks: list[Task],
    modules: list[ModuleShape],
    dimension: int | None,
    heads: list[TaskHead],
) -> Manifest:
    linear = [module.path for module in modules if module.kind == "linear" and module.path != "lm_head"]
    return Manifest(
        id=model_id,
        source="path:/nowhere",
        digest="d" * 64,
        family=family,
        architecture=architecture,
        tasks=tasks,
        dimension=dimension,
        max_tokens=128,
        vocabulary=100,
        dtype="float32",
        parameters=0,
        size_bytes=0,
        tokenizer_fingerprint="",
        modules=modules,
        packable=linear,
        heads=heads,
    )


@dataclass
class Stored:
    """A tensor to write: raw bytes under a dtype name."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


def stored(array: np.ndarray[Any, Any], dtype: str = "F32") -> Stored:
    """``array`` in a safetensors dtype; BF16 by cutting float32's lower half."""
    if dtype == "BF16":
        high = (np.ascontiguousarray(array, dtype="<f4").view("<u4") >> 16).astype("<u2")
        return Stored(dtype, array.shape, high.tobytes())
    return Stored(dtype, array.shape, np.ascontiguousarray(array).astype(_ITEM[dtype]).tobytes())


def safetensors_bytes(tensors: Mapping[str, Stored], metadata: Mapping[str, str] | None = None) -> bytes:
    """A well-formed file, tensors in the order given."""
    entries: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    position = 0
    for name, tensor in tensors.items():
        end = position + len(tensor.data)
        entries[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [position, end]}
        position = end
    return with_header(json.dumps(entries).encode(), b"".join(tensor.data for tensor in tensors.values()))


def with_header(header: bytes, data: bytes = b"", *, length: int | None = None) -> bytes:
    """Header and data behind a length that may lie."""
    return (len(header) if length is None else length).to_bytes(8, "little") + header + data


def lora(
    modules: Iterable[str],
    manifest: Manifest | None = None,
    *,
    rank: int | Mapping[str, int] = 4,
    prefix: str = PREFIX,
    infix: str = "",
    dtype: str = "F32",
    seed: int = 0,
    zero_b: bool = False,
) -> dict[str, Stored]:
    """Random A and B for ``modules`` (full paths) of a base."""
    shapes = {module.path: module.weight for module in (manifest or encoder_manifest()).modules}
    random = np.random.default_rng(seed)
    tensors = {}
    for path in modules:
        outputs, inputs = shapes[path]
        r = rank if isinstance(rank, int) else rank[path]
        a = random.standard_normal((r, inputs)).astype("<f4")
        b = random.standard_normal((outputs, r)).astype("<f4") * (0 if zero_b else 1)
        tensors[f"{prefix}{path}.lora_A{infix}.weight"] = stored(a, dtype)
        tensors[f"{prefix}{path}.lora_B{infix}.weight"] = stored(b, dtype)
    return tensors


def paths(*endings: str, manifest: Manifest | None = None) -> list[str]:
    """Module paths of a base that end in any of ``endings``."""
    known = (manifest or encoder_manifest()).packable
    return [path for path in known if path.endswith(endings)]


def configuration(**changes: Any) -> dict[str, Any]:
    """What PEFT writes, with changes; a value of ``...`` takes the key out."""
    plain: dict[str, Any] = {
        "base_model_name_or_path": ENCODER,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_alpha": 8,
        "lora_dropout": 0.0,
        "modules_to_save": None,
        "peft_type": "LORA",
        "r": 4,
        "target_modules": ["query", "value"],
        "task_type": None,
        "use_dora": False,
        "use_rslora": False,
    }
    return {key: value for key, value in (plain | changes).items() if value is not ...}


@dataclass
class Upload:
    """Files of an upload by name, and the bases that are registered."""

    files: dict[str, bytes]
    manifests: list[Manifest] = field(default_factory=lambda: [encoder_manifest(), decoder_manifest()])
    wanted: str = ""
    kind: str = ""
    choice: str = ""
    max_rank: int = 64
    limits: ArchiveLimits = field(default_factory=ArchiveLimits)

    def request(self, folder: Path) -> ValidationRequest:
        """Write the files as an upload handler does and name them."""
        place, work = folder / "received", folder / "work"
        place.mkdir()
        work.mkdir()
        listed = []
        for number, (name, data) in enumerate(self.files.items()):
            path = place / str(number)
            path.write_bytes(data)
            listed.append(UploadedFile(name=name, location=str(path)))
        return ValidationRequest(
            files=listed,
            work_dir=str(work),
            manifests=self.manifests,
            wanted_base_model=self.wanted,
            max_rank=self.max_rank,
            archive=self.limits,
            wanted_kind=self.kind,
            wanted_choice=self.choice,
        )

    def examine(self, folder: Path) -> SandboxReply:
        """The checks, in this process."""
        return examine(self.request(folder))


def adapter(tensors: Mapping[str, Stored] | bytes | None = None, config: Mapping[str, Any] | None = None) -> Upload:
    """A folder with one adapter: query and value of the tiny encoder when nothing else is said."""
    if tensors is None:
        tensors = lora(paths("query", "value"))
    data = tensors if isinstance(tensors, bytes) else safetensors_bytes(tensors, {"format": "pt"})
    text = json.dumps(configuration() if config is None else config).encode()
    return Upload({"adapter_config.json": text, "adapter_model.safetensors": data})


def zipped(files: Mapping[str, bytes], *, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip archive of ``files``."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def tarred(files: Mapping[str, bytes], *, mode: str = "w:gz", members: Iterable[tarfile.TarInfo] = ()) -> bytes:
    """A tar archive of ``files`` and further bare ``members``."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for member in members:
            archive.addfile(member)
    return out.getvalue()


def packed(upload: Upload, data: bytes, name: str = "adapter.zip") -> Upload:
    """The same upload as one archive."""
    return replace(upload, files={name: data})


def rows_of(reply: SandboxReply, outcome: Outcome) -> dict[Finding, Row]:
    """Rows with this outcome by code."""
    return {row.code: row for row in reply.report.rows if row.outcome is outcome}


def refusal(reply: SandboxReply, code: Finding, *parts: str) -> None:
    """Assert that the upload was refused for ``code`` alone, in words that name ``parts`` and a next step."""
    fails = rows_of(reply, Outcome.FAIL)
    assert set(fails) == {code}, [row for row in reply.report.rows if row.outcome is not Outcome.PASS]
    assert reply.probe is None
    assert reply.canonical_path == ""
    for part in parts:
        assert part in fails[code].found + fails[code].todo, fails[code]
    assert fails[code].todo


def acceptance(reply: SandboxReply, *notes: Finding) -> None:
    """Assert that nothing was refused or asked, and that exactly these codes were noted."""
    assert not reply.report.failed, rows_of(reply, Outcome.FAIL)
    assert reply.report.question is None
    assert set(rows_of(reply, Outcome.NOTE)) == set(notes), rows_of(reply, Outcome.NOTE)
    assert reply.probe is not None
    assert len(reply.report.digest) == 64
