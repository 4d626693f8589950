"""Formats of other tools, told apart by file names and tensor keys, each with the conversion to do."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass

from loras.validation.findings import clipped, failed, some
from loras.validation.weights.header import Header
from wire.reports import Finding, Row

CHECK = "Format"
_UPLOAD = "then upload adapter_config.json and adapter_model.safetensors"


@dataclass(frozen=True, slots=True)
class _Format:
    """``endings`` and ``starts`` are of tensor keys, ``files`` of base names."""

    code: Finding
    tool: str
    todo: str
    endings: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


_FORMATS = (
    _Format(
        Finding.FORMAT_KOHYA,
        "kohya's trainer",
        "Convert it to PEFT: lora_down is lora_A, lora_up is lora_B, alpha is lora_alpha; image models are not served.",
        endings=(".lora_down.weight", ".lora_up.weight"),
        starts=("lora_unet_", "lora_te_", "lora_te1_", "lora_te2_"),
    ),
    _Format(
        Finding.FORMAT_DIFFUSERS,
        "diffusers",
        "Adapters of image models are not served. For a text encoder's, save it with PEFT's save_pretrained.",
        endings=(".lora.down.weight", ".lora.up.weight"),
        starts=("unet.", "text_encoder.", "text_encoder_2.", "transformer.transformer_blocks."),
        files=("pytorch_lora_weights.safetensors", "pytorch_lora_weights.bin"),
    ),
    _Format(
        Finding.FORMAT_MLX,
        "MLX",
        "Convert it to PEFT: lora_A is lora_a transposed, lora_B is lora_b transposed, lora_alpha is scale x rank; "
        f"{_UPLOAD}.",
        endings=(".lora_a", ".lora_b"),
    ),
)
_GGUF = (
    Finding.FORMAT_GGUF,
    "the GGUF format of llama.cpp",
    "Upload the PEFT folder that convert_lora_to_gguf.py was given (adapter_config.json, adapter_model.safetensors).",
)
_OTHER_FILES = {
    ".gguf": _GGUF,
    ".ggml": _GGUF,
    ".onnx": (Finding.FORMAT_UNSUPPORTED, "ONNX", "Upload the safetensors weights it was exported from."),
    ".h5": (Finding.FORMAT_UNSUPPORTED, "the HDF5 format of Keras", "Save it from PyTorch as safetensors."),
    ".msgpack": (Finding.FORMAT_UNSUPPORTED, "the format of Flax", "Save it from PyTorch as safetensors."),
    ".tflite": (Finding.FORMAT_UNSUPPORTED, "TensorFlow Lite", "Save it from PyTorch as safetensors."),
    ".npz": (Finding.FORMAT_UNSUPPORTED, "NumPy's format", "Save it as safetensors, as PEFT's save_pretrained does."),
}


def foreign_keys(keys: Iterable[str]) -> Row | None:
    """The refusal of a file whose tensors are named as another tool does, if they are."""
    names = list(keys)
    for form in _FORMATS:
        odd = [
            name for name in names if name.endswith(form.endings or ("\0",)) or name.startswith(form.starts or ("\0",))
        ]
        if odd:
            what = f"{len(odd)} of {len(names)} keys are in the format of {form.tool}: {some(odd)}."
            return failed(CHECK, form.code, what, form.todo)
    return None


def check_keys(header: Header) -> list[Row]:
    """Keys named as another tool names them."""
    row = foreign_keys(tensor.name for tensor in header.tensors)
    return [row] if row is not None else []


def foreign_file(name: str) -> Row | None:
    """The refusal of a file of another tool, told by its name, if it is one."""
    base = posixpath.basename(name).lower()
    for form in _FORMATS:
        if base in form.files:
            return failed(CHECK, form.code, f"{clipped(name)} is in the format of {form.tool}.", form.todo)
    code, tool, todo = _OTHER_FILES.get(posixpath.splitext(base)[1], (None, "", ""))
    return None if code is None else failed(CHECK, code, f"{clipped(name)} is in {tool}.", todo)
