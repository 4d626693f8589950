"""The database: SQLite in WAL mode by default, PostgreSQL by ``DATABASE_URL``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import dj_database_url

BUSY_TIMEOUT_S = 20


def database_from_url(url: str, home: Path) -> dict[str, Any]:
    """Django's ``DATABASES`` entry for ``url``, or for SQLite in ``home`` when it is empty."""
    found = cast("dict[str, Any]", dict(dj_database_url.parse(url or f"sqlite:///{home / 'db.sqlite3'}")))
    if found["ENGINE"].endswith("sqlite3"):
        home.mkdir(parents=True, exist_ok=True)
        # IMMEDIATE takes the write lock at BEGIN: a transaction that reads first and writes later would otherwise
        # fail at once with "database is locked", without waiting for the busy timeout
        found["OPTIONS"] = {
            **found.get("OPTIONS", {}),
            "transaction_mode": "IMMEDIATE",
            "timeout": BUSY_TIMEOUT_S,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA temp_store=MEMORY;",
        }
    else:
        found["CONN_HEALTH_CHECKS"] = True
    return found
