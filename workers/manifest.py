"""``python -m workers.manifest --id ID --source SOURCE``: a base model's manifest as JSON, read without its weights.

The model is built on torch's meta device, so its module paths and shapes cost no memory; the weight files are read
once, for the digest.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from wire.codec import encode_json
from wire.errors import Code, ErrorInfo, ShoalError
from wire.jobs import Task
from wire.manifest import Manifest, ModuleShape
from workers.sources import resolve_source, weight_files, weights_digest

# causal decoders and sequence-to-sequence models of the classic kind are not served as embedding encoders
_ENCODERS = frozenset(
    {"bert", "distilbert", "roberta", "xlm-roberta", "camembert", "mpnet", "electra", "deberta-v2", "modernbert"}
)
_TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt", "vocab.json", "merges.txt",
    "tokenizer.model", "sentencepiece.bpe.model", "added_tokens.json",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Description:
    """What the configuration files of a sentence-transformers folder add to transformers' own."""

    max_tokens: int | None
    dimension: int | None


def make_manifest(model_id: str, source: str) -> Manifest:
    """The manifest of the base model at ``source``. Raises ``ShoalError(MODEL_UNLOADABLE)``."""
    path = resolve_source(source)
    config = _read_config(path)
    model = _build(config)
    shapes = _module_shapes(model)
    described = _sentence_transformers(path)
    tasks = [Task.EMBEDDINGS] if config.model_type in _ENCODERS else []
    dtype = _stored_dtype(path, config)
    return Manifest(
        id=model_id,
        source=source,
        digest=weights_digest(path),
        family=config.model_type,
        architecture=(config.architectures or [type(model).__name__])[0],
        tasks=tasks,
        dimension=(described.dimension or int(config.hidden_size)) if tasks else None,
        max_tokens=_max_tokens(config, described.max_tokens),
        vocabulary=int(config.vocab_size),
        dtype=dtype,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        size_bytes=sum(file.stat().st_size for file in weight_files(path)),
        tokenizer_fingerprint=_tokenizer_fingerprint(path),
        modules=shapes,
        packable=[shape.path for shape in shapes if shape.kind == "linear" and _servable(shape.path)],
    )


def _read_config(path: Path) -> Any:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(str(path), local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise _unloadable(f"{path} has no usable config.json: {error}") from error


def _build(config: Any) -> Any:
    """The model as it is served (encoders) or with its language head (decoders), on the meta device."""
    import torch
    from transformers import AutoModel, AutoModelForCausalLM

    kind = AutoModel if config.model_type in _ENCODERS else AutoModelForCausalLM
    try:
        with torch.device("meta"):
            return kind.from_config(config)  # type: ignore[no-untyped-call]
    except (ValueError, KeyError, RuntimeError) as error:
        raise _unloadable(f"a model of type {config.model_type!r} cannot be built: {error}") from error


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


def _sentence_transformers(path: Path) -> _Description:
    length = _json(path / "sentence_bert_config.json").get("max_seq_length")
    dimension = _json(path / "1_Pooling" / "config.json").get("word_embedding_dimension")
    return _Description(
        max_tokens=length if isinstance(length, int) else None,
        dimension=dimension if isinstance(dimension, int) else None,
    )


def _max_tokens(config: Any, described: int | None) -> int:
    positions = int(getattr(config, "max_position_embeddings", 0) or 0)
    # these families number positions from the padding id on
    if config.model_type in ("roberta", "xlm-roberta", "camembert", "mpnet"):
        positions -= int(config.pad_token_id or 0) + 1
    return min(length for length in (described, positions) if length) if described or positions else 512


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


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    parsed = json.loads(path.read_text())
    return parsed if isinstance(parsed, dict) else {}


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
