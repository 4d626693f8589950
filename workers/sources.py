"""Where a base model's files are, and the digest over its weights."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
from pathlib import Path

from wire.canonical import PREFIX_FILE
from wire.errors import Code, ShoalError
from wire.registry import ModelRecord
from workers.bundles import unpack_bundle

_WEIGHT_PATTERNS = ("*.safetensors", "*.bin", "*.gguf")
_CHUNK_BYTES = 1024 * 1024
_FLOAT32_BYTES = 4
_MOST_GGUF_GROWTH = 8
"""From 4 bits to 32; what a model really takes is measured once it is loaded."""
ARTIFACT_SOURCE = "artifact:"


def open_model(record: ModelRecord, artifact: Path | None, scratch: Path) -> Path:
    """The folder to load ``record`` from, its content checked against the record: a base model's own, also for a
    merged version; for a fine-tune ``scratch`` with the files of ``artifact``, needed until the model is loaded.

    Raises ``ShoalError``: MODEL_UNLOADABLE when the folder is missing or has other weights than registered (an empty
    digest is not compared), ARTIFACT_UNAVAILABLE when ``artifact`` was not delivered, and what ``unpack_bundle`` does.
    """
    if record.artifact is not None and artifact is None:
        raise ShoalError(
            Code.ARTIFACT_UNAVAILABLE, f"The file of {record.id} ({record.artifact[:12]}) was not delivered."
        )
    if record.source == ARTIFACT_SOURCE and artifact is not None:
        return unpack_bundle(artifact, scratch, digest=record.artifact or record.digest)
    path = resolve_source(record.source)
    expected = record.base_digest if record.artifact is not None else record.digest
    if expected:
        found = weights_digest(path)
        if found != expected:
            raise ShoalError(
                Code.MODEL_UNLOADABLE,
                f"The weights of {record.id} in {path} have digest {found}, registered is {expected}.",
                hint="Install the registered weights on this machine or register the base model again.",
            )
    return path


def expected_bytes(record: ModelRecord, artifact: Path | None) -> int:
    """What the weights of ``record`` will take in float32, from the headers of their files.

    Raises ``ShoalError``: MODEL_UNLOADABLE when there are none, ARTIFACT_UNAVAILABLE when a version's cannot be read.
    """
    if record.source == ARTIFACT_SOURCE:
        try:
            return _float32_bytes(artifact) if artifact is not None else record.size_bytes
        except OSError as error:
            what = f"The file of {record.id} cannot be read: {error.strerror}."
            raise ShoalError(Code.ARTIFACT_UNAVAILABLE, what) from error
    return sum(map(_float32_bytes, weight_files(resolve_source(record.source))))


def resolve_source(source: str) -> Path:
    """The directory that ``package:<package>[/sub/dir]``, ``path:<dir>`` or ``hub:<repository id>`` names.

    Nothing of a package is imported: only its location is looked up. Raises ``ShoalError(MODEL_UNLOADABLE)``.
    """
    kind, colon, rest = source.partition(":")
    if not colon or not rest:
        raise _unloadable(f"{source!r} is not a model source", "Use package:<name>/<dir>, path:<dir> or hub:<id>.")
    if kind == "package":
        path = _package_directory(source, rest)
    elif kind == "path":
        path = Path(rest)
    elif kind == "hub":
        path = _hub_directory(rest)
    else:
        raise _unloadable(f"{source!r} has the unknown kind {kind!r}", "Use package:, path: or hub:.")
    if not path.is_dir():
        raise _unloadable(f"{source!r} names {path}, which is not a directory", "Check the base model's source.")
    return path


def weight_files(path: Path) -> list[Path]:
    """Weight files of a model directory in name order: safetensors, or else pickled, or else GGUF files."""
    for pattern in _WEIGHT_PATTERNS:
        found = sorted(path.glob(pattern), key=lambda file: file.name)
        if found:
            return found
    raise _unloadable(f"{path} has no weight files", f"Expected one of {', '.join(_WEIGHT_PATTERNS)}.")


def weights_digest(path: Path) -> str:
    """SHA-256 (hex) over the weight files in name order: of each its name, a zero byte and its own
    SHA-256.
    """
    total = hashlib.sha256()
    for file in weight_files(path):
        total.update(file.name.encode() + b"\0")
        total.update(bytes.fromhex(file_digest(file)))
    return total.hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 (hex) of one file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as handle:
        while chunk := handle.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _float32_bytes(file: Path) -> int:
    size = file.stat().st_size
    if file.suffix == ".gguf":
        return size * _MOST_GGUF_GROWTH
    if file.suffix != ".safetensors":
        return size
    with file.open("rb") as handle:
        length = int.from_bytes(handle.read(8), "little")
        try:
            header = json.loads(handle.read(min(length, size)))
            tensors = [entry for name, entry in header.items() if not name.startswith(("__", PREFIX_FILE))]
            return sum(_FLOAT32_BYTES * math.prod(entry["shape"]) for entry in tensors)
        except (ValueError, KeyError, TypeError, AttributeError):
            return size  # whoever loads it says what is wrong with it


def _package_directory(source: str, rest: str) -> Path:
    package, _, inside = rest.partition("/")
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError) as error:
        raise _unloadable(f"{source!r}: {error}", "Install the package in the worker's environment.") from error
    if spec is None or not spec.submodule_search_locations:
        raise _unloadable(
            f"{source!r}: Python package {package!r} is not installed",
            "Install the package in the worker's environment.",
        )
    root = Path(next(iter(spec.submodule_search_locations))).resolve()
    path = (root / inside).resolve()
    if not path.is_relative_to(root):
        raise _unloadable(f"{source!r} leaves its package", "Name a directory inside the package.")
    return path


def _hub_directory(repository: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(repository))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        raise _unloadable(
            f"hub:{repository} cannot be fetched: {error}",
            "Check the repository id, the network, and whether HF_HUB_OFFLINE is set.",
        ) from error


def _unloadable(message: str, hint: str) -> ShoalError:
    return ShoalError(Code.MODEL_UNLOADABLE, f"{message}.", hint=hint)
