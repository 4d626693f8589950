"""Settings that several processes have: bounds of the queue, and values that files give.

``<NAME>_FILE``: the content of the named file stands in for a setting, so that secrets need no environment.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Bounds and guarantees of the queue.

    ``max_messages`` and ``max_bytes`` hold for all models together, ``max_model_messages`` for each: a model without
    workers must leave room for the others.
    """

    max_messages: int = 10_000
    max_bytes: int = 256 * 1024 * 1024
    storage: str = "memory"
    replicas: int = 1
    ack_wait_s: float = 15.0
    max_deliver: int = 5

    @property
    def max_model_messages(self) -> int:
        """Jobs of one base model that may wait."""
        return max(1, self.max_messages // 2)


class QueueEnvironment(BaseSettings):
    """The queue's settings from the environment: gateways, sidecars and the control plane must be told the same, or
    they would change the streams back and forth."""

    queue_max_messages: int = Field(default=10_000, validation_alias="SHOAL_QUEUE_MAX_MESSAGES", gt=0)
    queue_max_bytes: int = Field(default=256 * 1024**2, validation_alias="SHOAL_QUEUE_MAX_BYTES", gt=0)
    queue_storage: Literal["memory", "file"] = Field(default="memory", validation_alias="SHOAL_QUEUE_STORAGE")
    queue_replicas: int = Field(default=1, validation_alias="SHOAL_QUEUE_REPLICAS", ge=1, le=5)

    @property
    def queue(self) -> QueueSettings:
        """What streams, consumers and buckets shall be."""
        return QueueSettings(
            max_messages=self.queue_max_messages,
            max_bytes=self.queue_max_bytes,
            storage=self.queue_storage,
            replicas=self.queue_replicas,
        )


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
