"""The written canonical artifact, whichever kind of upload it is of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from loras.validation.findings import passed
from wire.canonical import METADATA_KEY, CanonicalHeader
from wire.reports import AdapterFacts, Row

CANONICAL_NAME = "canonical.safetensors"


@dataclass(frozen=True, slots=True)
class Canonical:
    """The written artifact: its path, SHA-256 and size."""

    path: Path
    digest: str
    size_bytes: int
    facts: AdapterFacts


def header_metadata(header: CanonicalHeader) -> dict[str, str]:
    """The metadata of a canonical file."""
    return {"format": "pt", METADATA_KEY: msgspec.json.encode(header, order="sorted").decode()}


def check_canonical(written: Canonical) -> list[Row]:
    """The version's digest."""
    found = f"{written.size_bytes:,} bytes, SHA-256 {written.digest}"
    return [passed("Canonical artifact", found)]
