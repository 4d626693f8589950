"""Which workers an operator drained, kept in a small file so that a restart of the sidecar does not undo it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import structlog

from wire import codec

log = structlog.get_logger(__name__)


class DrainedWorkers:
    """Ids of drained workers; ``path`` is written anew on every change."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._workers = self._read()

    def __contains__(self, worker: str) -> bool:
        return worker in self._workers

    def set(self, worker: str, *, drained: bool) -> None:
        """Remember whether ``worker`` is drained. A file that cannot be written is logged; it holds until the end."""
        changed = self._workers | {worker} if drained else self._workers - {worker}
        if changed == self._workers:
            return
        self._workers = changed
        temporary = self._path.with_name(f"{self._path.name}.part")
        try:
            with temporary.open("wb") as file:
                file.write(codec.encode_json(sorted(changed)))
                os.fsync(file.fileno())
            temporary.replace(self._path)
        except OSError as error:
            log.error("cannot keep which workers are drained, a restart of the sidecar will forget it",  # noqa: TRY400
                      path=str(self._path), error=error.strerror)  # fmt: skip

    def _read(self) -> frozenset[str]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=frozenset[str])
        except FileNotFoundError:
            return frozenset()
        except (OSError, msgspec.DecodeError) as error:
            log.error("cannot read which workers are drained, none is", path=str(self._path), error=str(error))  # noqa: TRY400
            return frozenset()
