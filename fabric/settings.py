"""``<NAME>_FILE``: the content of the named file stands in for a setting, so that secrets need no environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo


def with_file_values(values: Any, fields: dict[str, FieldInfo]) -> Any:
    """``values`` with those that only ``<NAME>_FILE`` gives. Raises ``ValueError`` naming every unreadable file."""
    if not isinstance(values, dict):
        return values
    problems, found = [], {}
    for field_name, field in fields.items():
        name = str(field.validation_alias)
        path = os.environ.get(f"{name}_FILE")
        if not path or values.get(name) or field_name in values:
            continue
        try:
            found[name] = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            problems.append(f"{name}_FILE names {path}: {reason}")
    if problems:
        raise ValueError("; ".join(problems))
    return {**values, **found}
