"""Reading canonical artifacts and turning them into what slots hold."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from torch import Tensor

from wire.canonical import FORMAT, METADATA_KEY, PREFIX_HEAD, SUFFIX_A, SUFFIX_B, CanonicalHeader, HeadHeader
from wire.codec import WireDecodeError, decode_json
from wire.errors import Code, ShoalError
from workers.packing.heads import TaskHead

HeadMaker = Callable[[HeadHeader, Mapping[str, Tensor]], TaskHead]


@dataclass(frozen=True, slots=True)
class AdapterArtifact:
    """A canonical file as it was written: header and tensors by name."""

    header: CanonicalHeader
    tensors: dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class AdapterWeights:
    """One module's pair, ready for a slot: ``a`` (rank, in) and ``b`` (rank, out) with the scale folded into
    ``b``.
    """

    rank: int
    a: Tensor
    b: Tensor


@dataclass(frozen=True, slots=True)
class PreparedAdapter:
    """An adapter checked against a model, its weights float32 in host memory, keyed by module path. ``size_bytes``
    counts its head too."""

    digest: str
    modules: dict[str, AdapterWeights]
    rank: int
    size_bytes: int
    head: TaskHead | None = None


def read_artifact(path: Path, *, expected_digest: str | None = None) -> AdapterArtifact:
    """The canonical file at ``path``.

    Raises ``ShoalError``: ARTIFACT_UNAVAILABLE when the file cannot be read, ARTIFACT_CORRUPT when its
    SHA-256 is not ``expected_digest`` or it is no canonical file.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ShoalError(
            Code.ARTIFACT_UNAVAILABLE, f"The adapter file {path.name} cannot be read: {error.strerror}."
        ) from error
    if expected_digest is not None:
        found = hashlib.sha256(data).hexdigest()
        if found != expected_digest:
            raise _corrupt(path, f"its SHA-256 is {found}, expected {expected_digest}")
    header = _read_header(path, data)
    try:
        tensors = load_safetensors(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise _corrupt(path, f"it is no safetensors file ({error})") from error
    for name in header.modules:
        for suffix in (SUFFIX_A, SUFFIX_B):
            if name + suffix not in tensors:
                raise _corrupt(path, f"tensor {name + suffix} is missing")
    for name in header.head.tensors if header.head is not None else ():
        if PREFIX_HEAD + name not in tensors:
            raise _corrupt(path, f"tensor {PREFIX_HEAD + name} is missing")
    return AdapterArtifact(header=header, tensors=tensors)


def prepare_adapter(
    digest: str,
    artifact: AdapterArtifact,
    shapes: Mapping[str, tuple[int, int]],
    *,
    model_digest: str,
    max_rank: int,
    make_head: HeadMaker,
    pinned: bool = False,
) -> PreparedAdapter:
    """Check ``artifact`` against a model's packable modules, fold its scales and make its head.

    ``shapes`` maps a module path to (out_features, in_features). Raises ``ShoalError(ADAPTER_UNLOADABLE)``.
    An empty digest on either side is not compared. ``pinned`` weights are page-locked: a GPU fetches them without a
    copy in between.
    """
    trained_on = artifact.header.base_digest
    if model_digest and trained_on and trained_on != model_digest:
        raise _unloadable(f"it belongs to base weights {trained_on[:12]}, loaded are {model_digest[:12]}")
    if artifact.header.kind != "lora" or artifact.header.replaced:
        raise _unloadable("it has weights of its own and is served as a model, not from slots")
    modules: dict[str, AdapterWeights] = {}
    for name, module in artifact.header.modules.items():
        if module.dora:
            raise _unloadable(f"module {name} is a DoRA module, which is served as a model, not from slots")
        shape = shapes.get(name)
        if shape is None:
            raise _unloadable(f"module {name} is no linear module of the base model")
        if module.rank > max_rank:
            raise _unloadable(f"module {name} has rank {module.rank}, the limit is {max_rank}")
        a, b = artifact.tensors[name + SUFFIX_A], artifact.tensors[name + SUFFIX_B]
        out_features, in_features = shape
        if a.shape != (module.rank, in_features) or b.shape != (out_features, module.rank):
            raise _unloadable(
                f"module {name} has A {tuple(a.shape)} and B {tuple(b.shape)}, the base model needs "
                f"{(module.rank, in_features)} and {(out_features, module.rank)}"
            )
        modules[name] = AdapterWeights(
            rank=module.rank,
            a=_host(a.to(torch.float32), pinned=pinned),
            b=_host((b.to(torch.float32) * module.scale).t(), pinned=pinned),
        )
    head = _head(artifact, make_head)
    size = sum(4 * (weights.a.numel() + weights.b.numel()) for weights in modules.values())
    return PreparedAdapter(
        digest=digest,
        modules=modules,
        rank=max((weights.rank for weights in modules.values()), default=0),
        size_bytes=size + (head.size_bytes if head is not None else 0),
        head=head,
    )


def _host(tensor: Tensor, *, pinned: bool) -> Tensor:
    return tensor.contiguous().pin_memory() if pinned else tensor.contiguous()


def head_tensors(artifact: AdapterArtifact) -> dict[str, Tensor]:
    """The tensors of the artifact's head by parameter name; none without a head."""
    header = artifact.header.head
    return {} if header is None else {name: artifact.tensors[PREFIX_HEAD + name] for name in header.tensors}


def _head(artifact: AdapterArtifact, make_head: HeadMaker) -> TaskHead | None:
    header = artifact.header.head
    return None if header is None else make_head(header, head_tensors(artifact))


def _read_header(path: Path, data: bytes) -> CanonicalHeader:
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise _corrupt(path, "its header is cut off")
    try:
        metadata = json.loads(data[8 : 8 + length]).get("__metadata__", {})
        header = decode_json(metadata.get(METADATA_KEY, ""), CanonicalHeader)
    except (ValueError, AttributeError, WireDecodeError) as error:
        raise _corrupt(path, f"its header is no canonical header ({error})") from error
    if header.format != FORMAT:
        raise _unloadable(f"{path.name} has canonical format {header.format}, this worker reads {FORMAT}")
    return header


def _corrupt(path: Path, reason: str) -> ShoalError:
    return ShoalError(
        Code.ARTIFACT_CORRUPT,
        f"The adapter file {path.name} is damaged: {reason}.",
        hint="It is fetched again on the next request.",
    )


def _unloadable(reason: str) -> ShoalError:
    return ShoalError(
        Code.ADAPTER_UNLOADABLE,
        f"The adapter cannot be loaded: {reason}.",
        hint="Push a version that was trained on this base model.",
    )
