"""Applying a canonical artifact to a model's own copy of the weights, for versions that slots cannot serve."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from wire.canonical import PREFIX_REPLACE, SUFFIX_A, SUFFIX_B, SUFFIX_MAGNITUDE, ModuleHeader
from wire.errors import Code, ShoalError
from workers.packing.artifact import AdapterArtifact
from workers.packing.layers import PackedConv1D


def apply_artifact(module: nn.Module, artifact: AdapterArtifact, *, base_digest: str | None) -> None:
    """Change the weights of ``module``, the base model's own class, to what ``artifact`` trained.

    ``base_digest`` names the weights that ``module`` has; an empty one is not compared. Nothing is changed before
    everything was checked. A task head in the artifact is left to the caller. Raises
    ``ShoalError(ADAPTER_UNLOADABLE)`` naming what does not fit.
    """
    trained_on = artifact.header.base_digest
    if base_digest and trained_on and trained_on != base_digest:
        raise _unloadable(f"it belongs to base weights {trained_on[:12]}, loaded are {base_digest[:12]}")
    replacements = {name: _replacement(module, artifact, name) for name in artifact.header.replaced}
    pairs = {path: _checked(module, artifact, path, header) for path, header in artifact.header.modules.items()}
    with torch.no_grad():
        # first, so that an update of a replaced weight adds to the new one, as PEFT's wrapped modules do
        for name, tensor in replacements.items():
            _replace(module, name, tensor)
        for path, header in artifact.header.modules.items():
            _merge(module.get_submodule(path), *pairs[path], header)


def _merge(layer: nn.Module, a: Tensor, b: Tensor, magnitude: Tensor | None, header: ModuleHeader) -> None:
    weight: Tensor = layer.weight  # type: ignore[assignment]
    transposed = _is_transposed(layer)
    # in float32 also for half-precision bases: the sum of weight and update is rounded once
    merged = (weight.t() if transposed else weight).to(torch.float32)
    merged = merged + header.scale * (b.to(merged) @ a.to(merged))
    if magnitude is not None:
        norms = torch.linalg.norm(merged, dim=1, keepdim=True)
        merged = merged * (magnitude.to(merged).reshape(-1, 1) / norms)
    merged = (merged.t() if transposed else merged).to(weight.dtype).contiguous()
    # a parameter of its own: files that are mapped into memory and tied weights stay as they are
    layer.weight = nn.Parameter(merged, requires_grad=False)


def _checked(
    module: nn.Module, artifact: AdapterArtifact, path: str, header: ModuleHeader
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The tensors A, B and magnitude of one target module, once they fit it."""
    try:
        layer = module.get_submodule(path)
    except AttributeError as error:
        raise _unloadable(f"the base model has no module {path}") from error
    weight = getattr(layer, "weight", None)
    if not (isinstance(layer, nn.Linear) or _is_transposed(layer)) or not isinstance(weight, Tensor):
        raise _unloadable(f"module {path} is a {type(layer).__name__}, not a linear module")
    inputs, outputs = weight.shape if _is_transposed(layer) else weight.shape[::-1]
    a, b = artifact.tensors[path + SUFFIX_A], artifact.tensors[path + SUFFIX_B]
    if a.shape != (header.rank, inputs) or b.shape != (outputs, header.rank):
        raise _unloadable(
            f"module {path} has A {tuple(a.shape)} and B {tuple(b.shape)}, the base model needs "
            f"{(header.rank, inputs)} and {(outputs, header.rank)}"
        )
    magnitude = artifact.tensors.get(path + SUFFIX_MAGNITUDE)
    if not header.dora:
        return a, b, None
    if magnitude is None or magnitude.numel() != outputs:
        found = "none" if magnitude is None else f"{tuple(magnitude.shape)}"
        raise _unloadable(f"module {path} is DoRA and needs magnitudes ({outputs},), the file has {found}")
    return a, b, magnitude


def _replacement(module: nn.Module, artifact: AdapterArtifact, name: str) -> Tensor:
    tensor = artifact.tensors.get(PREFIX_REPLACE + name)
    if tensor is None:
        raise _unloadable(f"the tensor for parameter {name} is missing")
    try:
        held = module.get_parameter(name)
    except AttributeError as error:
        raise _unloadable(f"the base model has no parameter {name}") from error
    if held.shape != tensor.shape:
        raise _unloadable(f"parameter {name} has {tuple(tensor.shape)}, the base model needs {tuple(held.shape)}")
    return tensor


def _replace(module: nn.Module, name: str, tensor: Tensor) -> None:
    """Give the module that owns ``name`` a parameter of its own: a weight tied to it elsewhere keeps the base's
    values, as with PEFT's saved modules."""
    owner_path, _, leaf = name.rpartition(".")
    owner = module.get_submodule(owner_path)
    held = getattr(owner, leaf)
    setattr(owner, leaf, nn.Parameter(tensor.to(device=held.device, dtype=held.dtype), requires_grad=False))


def _is_transposed(layer: nn.Module) -> bool:
    """Whether the layer keeps its weight as (in_features, out_features): GPT-2's Conv1D."""
    from transformers.pytorch_utils import Conv1D

    return isinstance(layer, Conv1D | PackedConv1D)


def _unloadable(reason: str) -> ShoalError:
    return ShoalError(
        Code.ADAPTER_UNLOADABLE,
        f"The adapter cannot be merged: {reason}.",
        hint="Push a version that was trained on this base model.",
    )
