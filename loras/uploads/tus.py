"""Headers of resumable uploads as tus 1.0 has them (https://tus.io/protocols/resumable-upload). Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import Any

from wire.errors import Code, ShoalError

VERSION = "1.0.0"
EXTENSIONS = "creation,creation-with-upload,termination,checksum,expiration"
ALGORITHMS = ("sha256", "sha1")
CHUNK_TYPE = "application/offset+octet-stream"
MOST_METADATA_BYTES = 8_192
# what fits the column of a size
MOST_BYTES = 2**63 - 1

_KEY = re.compile(r"[!-+\--~]+\Z")
_NUMBER = re.compile(r"[0-9]{1,19}\Z")


@dataclass(frozen=True, slots=True)
class Checksum:
    """What a chunk's bytes must hash to."""

    algorithm: str
    digest: bytes

    def start(self) -> Any:
        """A fresh hash of its kind."""
        return hashlib.new(self.algorithm, usedforsecurity=False)


def check_version(offered: str | None) -> None:
    """Refuse another protocol version. A request without one is taken for 1.0: curl users send none."""
    if offered not in {None, VERSION}:
        raise ShoalError(
            Code.PROTOCOL_VERSION,
            f"This server speaks tus {VERSION}, the request {str(offered)[:40]!r}.",
            param="Tus-Resumable",
            hint=f"Send `Tus-Resumable: {VERSION}`.",
        )


def read_count(name: str, value: str | None) -> int:
    """The whole number in the header ``name``. Raises ``ShoalError(INVALID_REQUEST)``."""
    if value is None or not _NUMBER.match(value) or int(value) > MOST_BYTES:
        found = "is missing" if value is None else f"is {value[:40]!r}"
        raise ShoalError(Code.INVALID_REQUEST, f"{name} {found}; it is a whole number of bytes.", param=name)
    return int(value)


def read_metadata(value: str | None) -> dict[str, str]:
    """``Upload-Metadata``: pairs ``key base64(UTF-8 text)`` joined by commas. Raises ``ShoalError``."""
    if not value or not value.strip():
        return {}
    if len(value) > MOST_METADATA_BYTES:
        raise _bad_metadata(f"has {len(value)} bytes; at most {MOST_METADATA_BYTES} are read")
    found: dict[str, str] = {}
    for pair in value.split(","):
        key, _, encoded = pair.strip().partition(" ")
        if not _KEY.match(key):
            raise _bad_metadata(f"has the key {key[:40]!r}, which is empty or not printable ASCII")
        if key in found:
            raise _bad_metadata(f"has the key {key!r} twice")
        try:
            found[key] = base64.b64decode(encoded.strip(), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError, ValueError):
            raise _bad_metadata(f"has no base64 of UTF-8 text for the key {key!r}") from None
        if "\0" in found[key]:
            raise _bad_metadata(f"has a NUL in the value of {key!r}")
    return found


def write_metadata(metadata: dict[str, str]) -> str:
    """The header for ``metadata``."""
    return ",".join(f"{key} {base64.b64encode(value.encode()).decode()}".strip() for key, value in metadata.items())


def read_checksum(value: str | None) -> Checksum | None:
    """``Upload-Checksum``: ``<algorithm> <base64 digest>``. Raises ``ShoalError(INVALID_REQUEST)``."""
    if value is None:
        return None
    algorithm, _, encoded = value.strip().partition(" ")
    if algorithm not in ALGORITHMS:
        raise ShoalError(
            Code.INVALID_REQUEST,
            f"The checksum algorithm {algorithm[:40]!r} is not known.",
            param="Upload-Checksum",
            hint=f"Known: {', '.join(ALGORITHMS)}.",
        )
    try:
        digest = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        digest = b""
    size = hashlib.new(algorithm, usedforsecurity=False).digest_size
    if len(digest) != size:
        raise ShoalError(
            Code.INVALID_REQUEST, f"Upload-Checksum is not base64 of {size} bytes.", param="Upload-Checksum"
        )
    return Checksum(algorithm, digest)


def _bad_metadata(problem: str) -> ShoalError:
    return ShoalError(
        Code.INVALID_REQUEST,
        f"Upload-Metadata {problem}.",
        param="Upload-Metadata",
        hint="It is `key base64(value)`, pairs joined by commas: filename, name, sha256, …",
    )
