"""The adapter list as a spreadsheet reads it: the same filter and order as the page, all pages of it."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from io import StringIO

from loras.page_rows import AdapterRow

MAX_ROWS = 10_000
HEAD = ("adapter", "state", "live", "base_model", "versions", "size_bytes", "changed")


def write_csv(rows: Iterable[AdapterRow]) -> str:
    """One line an adapter; sizes in bytes, times in ISO 8601 (UTC)."""
    text = StringIO()
    writer = csv.writer(text)
    writer.writerow(HEAD)
    for row in rows:
        size = "" if row.size_bytes is None else row.size_bytes
        name = f"{row.team}/{row.name}"
        writer.writerow([name, row.state, row.live, row.base_model, row.versions, size, f"{row.updated_at:%FT%TZ}"])
    return text.getvalue()
