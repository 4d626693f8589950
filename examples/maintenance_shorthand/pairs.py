"""The example's data as it lies beside this file."""

from __future__ import annotations

import json
from pathlib import Path

HERE = Path(__file__).resolve().parent


def read_pairs(name: str) -> list[tuple[str, str]]:
    """(query, document) pairs of ``train`` or ``heldout``."""
    rows = [json.loads(line) for line in (HERE / f"{name}.jsonl").read_text().splitlines()]
    return [(row["query"], row["document"]) for row in rows]
