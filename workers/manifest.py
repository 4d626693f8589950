"""``python -m workers.manifest --id ID --source SOURCE``: a base model's manifest as JSON, read without its weights.

The model is built on torch's meta device, so its module paths and shapes cost no memory; the weight files are read
once, for the digest.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from wire.codec import encode_json
from wire.errors import Code, ErrorInfo, ShoalError
from wire.jobs import Task
from wire.manifest import HeadTensor, Manifest, ModuleShape, TaskHead
from workers.models.families import body_class, build_empty, is_generative, most_tokens, own_head_task
from workers.models.folder import open_folder
from workers.models.heads import empty_head, head_class, without_body
from workers.models.sentence_files import read_sentence_settings
from workers.sources import resolve_source, weight_files, weights_digest

_TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt", "vocab.json", "merges.txt",
    "tokenizer.model", "sentencepiece.bpe.model", "added_tokens.json",
)  # fmt: skip


def make_manifest(model_id: str, source: str) -> Manifest:
    """The manifest of the base model at ``source``. Raises ``ShoalError(MODEL_UNLOADABLE)``."""
    path = resolve_source(source)
    folder = open_folder(path)
    config = folder.config()
    settings = read_sentence_settings(path)
    tasks = _tasks(config, path)
    model = _build(config, path)
    shapes = _module_shapes(model)
    embeds = Task.EMBEDDINGS in tasks
    return Manifest(
        id=model_id,
        source=source,
        digest=weights_digest(path),
        family=config.model_type,
        architecture=(config.architectures or [type(model).__name__])[0],
        tasks=tasks,
        dimension=settings.dimension(int(config.hidden_size)) if embeds else None,
        max_tokens=most_tokens(config, settings.max_tokens),
        vocabulary=int(config.vocab_size),
        dtype=_stored_dtype(path, config),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        size_bytes=sum(file.stat().st_size for file in weight_files(path)),
        tokenizer_fingerprint=_tokenizer_fingerprint(path),
        modules=shapes,
        packable=[shape.path for shape in shapes if shape.kind == "linear" and _servable(shape.path)],
        heads=_heads(config),
    )


def _tasks(config: Any, path: Path) -> list[Task]:
    """What the model does without an adapter's head."""
    own = own_head_task(config)
    if own is Task.CLASSIFY and config.num_labels == 1:
        return [Task.RERANK, Task.CLASSIFY]
    if own is not None:
        return [own]
    return [Task.GENERATE] if is_generative(config, path) else [Task.EMBEDDINGS, Task.RERANK]


def _build(config: Any, path: Path) -> Any:
    """The model as slots are made in it, on the meta device."""
    own = own_head_task(config)
    try:
        if own is None:
            return build_empty(body_class(config, path), config)
        return without_body(build_empty(head_class(own), config))[1]
    except (ValueError, KeyError, RuntimeError, AttributeError) as error:
        raise _unloadable(f"a model of type {config.model_type!r} cannot be built: {error}") from error


def _heads(config: Any) -> list[TaskHead]:
    """The heads that adapters may bring: their tensors as they differ between two numbers of labels."""
    own = own_head_task(config)
    found = []
    for task in (Task.CLASSIFY, Task.TOKEN_CLASSIFY):
        # a body made for one head lacks what another reads: a pooler
        if own not in (None, task):
            continue
        try:
            two, three = (empty_head(config, task, labels) for labels in (2, 3))
        except ShoalError:
            continue
        shapes = dict(two.state_dict())
        tensors = [
            HeadTensor(name, _label_shape(shapes[name].shape, tensor.shape))
            for name, tensor in three.state_dict().items()
        ]
        found.append(TaskHead(task, str(two.base_model_prefix), tensors))
    return found


def _label_shape(two: Sequence[int], three: Sequence[int]) -> list[int]:
    """The shape with -1 for what grows with the labels."""
    return [one if one == other else -1 for one, other in zip(two, three, strict=True)]


def _module_shapes(model: Any) -> list[ModuleShape]:
    from torch import nn
    from transformers.pytorch_utils import Conv1D

    shapes = []
    for path, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if not path or weight is None:
            continue
        shape = list(weight.shape)
        if isinstance(module, Conv1D):
            kind, shape = "linear", shape[::-1]
        elif isinstance(module, nn.Linear):
            kind = "linear"
        elif isinstance(module, nn.Embedding):
            kind = "embedding"
        else:
            kind = "norm"
        bias = getattr(module, "bias", None) is not None
        dtype = str(weight.dtype).removeprefix("torch.")
        shapes.append(ModuleShape(path=path, kind=kind, weight=shape, dtype=dtype, bias=bias))
    return shapes


def _servable(path: str) -> bool:
    """Whether slots exist for the linear module: a decoder's head is shared by all adapters."""
    return path.split(".")[0] != "lm_head"


def _stored_dtype(path: Path, config: Any) -> str:
    declared = getattr(config, "dtype", None)
    if declared is not None:
        return str(declared).removeprefix("torch.")
    file = weight_files(path)[0]
    if file.suffix != ".safetensors":
        return "float32"
    from safetensors import safe_open

    with safe_open(str(file), framework="pt") as tensors:
        name = next(iter(tensors.keys()))
        stored = str(tensors.get_slice(name).get_dtype())
    return {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}.get(stored, stored)


def _tokenizer_fingerprint(path: Path) -> str:
    """SHA-256 over the tokenizer's files in name order; "" when there are none."""
    digest = hashlib.sha256()
    found = sorted(name for name in _TOKENIZER_FILES if (path / name).is_file())
    for name in found:
        digest.update(name.encode() + b"\0" + hashlib.sha256((path / name).read_bytes()).digest())
    return digest.hexdigest() if found else ""


def _unloadable(message: str) -> ShoalError:
    return ShoalError(Code.MODEL_UNLOADABLE, f"{message}.", hint="Check the base model's folder.")


def main(arguments: list[str] | None = None) -> int:
    """Print the manifest, or one error as JSON on stderr with exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m workers.manifest", description="Print a base model's manifest.")
    parser.add_argument("--id", required=True, help="id that requests name")
    parser.add_argument("--source", required=True, help="package:<name>/<dir>, path:<dir> or hub:<repository id>")
    options = parser.parse_args(arguments)
    try:
        manifest = make_manifest(options.id, options.source)
    except ShoalError as error:
        info: ErrorInfo = error.info
        sys.stderr.buffer.write(msgspec.json.encode(info) + b"\n")
        return 2
    sys.stdout.buffer.write(encode_json(manifest) + b"\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
