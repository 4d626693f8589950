"""Artifacts on this machine's disk: found at once or fetched once, the least recently used go first."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from collections import Counter, OrderedDict
from functools import partial
from pathlib import Path

import structlog

from sidecar import metrics
from sidecar.artifacts.download import ArtifactSource, DigestMismatch
from wire.errors import Code, ErrorInfo, ShoalError

log = structlog.get_logger(__name__)

DIGEST = re.compile(r"[0-9a-f]{64}\Z")
MAX_REMEMBERED_FAILURES = 1024


class ArtifactCache:
    """Files ``<directory>/<sha256>``, within ``max_bytes`` in sum. Used by one process."""

    def __init__(
        self, directory: Path, max_bytes: int, source: ArtifactSource, *, failure_memory_s: float = 2.0
    ) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._source = source
        self._failure_memory_s = failure_memory_s
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._incoming: dict[str, int] = {}
        self._bytes = 0
        self._users: Counter[str] = Counter()
        self._fetches: dict[str, asyncio.Task[Path]] = {}
        self._failures: OrderedDict[str, tuple[float, ErrorInfo]] = OrderedDict()

    def open(self) -> None:
        """Take over what an earlier process left; files half written are removed. Raises ``OSError``."""
        self._directory.mkdir(parents=True, exist_ok=True)
        found: list[tuple[float, str, int]] = []
        for path in self._directory.iterdir():
            if path.suffix == ".part":
                path.unlink(missing_ok=True)
            elif DIGEST.match(path.name) and path.is_file():
                status = path.stat()
                found.append((status.st_mtime, path.name, status.st_size))
        for _, name, size in sorted(found):
            self._keep(name, size)
        self._make_room()
        metrics.CACHE_BYTES.set(self.bytes)

    async def close(self) -> None:
        """End running downloads."""
        for task in list(self._fetches.values()):
            task.cancel()
        await asyncio.gather(*self._fetches.values(), return_exceptions=True)
        await self._source.close()

    @property
    def bytes(self) -> int:
        """Bytes on disk, those of running downloads included."""
        return self._bytes + sum(self._incoming.values())

    def find(self, digest: str) -> Path | None:
        """The file of ``digest`` if it is here; makes it the most recently used."""
        if digest not in self._sizes:
            return None
        path = self._directory / digest
        if not os.path.isfile(path):
            # Somebody cleaned the directory: fetch it again rather than fail.
            self._forget(digest)
            return None
        self._sizes.move_to_end(digest)
        return path

    def hold(self, digest: str) -> None:
        """Never evict ``digest`` until ``release``; counted."""
        self._users[digest] += 1

    def release(self, digest: str) -> None:
        """Take back one ``hold``."""
        self._users[digest] -= 1
        if self._users[digest] <= 0:
            del self._users[digest]

    def drop(self, digest: str) -> None:
        """Remove the file of ``digest``: its bytes are not what they should be."""
        with contextlib.suppress(OSError):
            (self._directory / digest).unlink()
        self._forget(digest)

    async def ensure(self, digest: str) -> Path:
        """The file of ``digest``, downloaded if it is not here. Raises ``ShoalError`` ARTIFACT_UNAVAILABLE or _CORRUPT.

        All callers of one digest share one download; a failure is answered from memory for ``failure_memory_s``.
        """
        if not DIGEST.match(digest):
            raise ShoalError(
                Code.ARTIFACT_UNAVAILABLE, f"{digest[:80]!r} is no digest: 64 hexadecimal digits are expected."
            )
        path = self.find(digest)
        if path is not None:
            return path
        self._raise_remembered(digest)
        task = self._fetches.get(digest)
        if task is None:
            task = asyncio.create_task(self._fetch(digest), name=f"fetch {digest[:12]}")
            self._fetches[digest] = task
            task.add_done_callback(lambda _: self._fetches.pop(digest, None))
        # One caller that goes away must not end the download for the others.
        return await asyncio.shield(task)

    async def _fetch(self, digest: str) -> Path:
        started = time.monotonic()
        try:
            path = await self._download_twice(digest)
            size = path.stat().st_size
        except ShoalError as error:
            log.warning("artifact not available", digest=digest, code=str(error.code), error=str(error))
            self._remember_failure(digest, error)
            raise
        except Exception as error:
            # Whatever it is, it is this adapter's trouble and nobody else's.
            log.exception("artifact not available", digest=digest)
            unknown = ShoalError(
                Code.ARTIFACT_UNAVAILABLE,
                f"Artifact {digest} cannot be fetched: {type(error).__name__}: {error}.",
                hint="The log of this machine's sidecar has the whole story.",
            )
            self._remember_failure(digest, unknown)
            raise unknown from error
        finally:
            self._incoming.pop(digest, None)
        self._keep(digest, size)
        self._failures.pop(digest, None)
        self._make_room(keep=digest)
        metrics.DOWNLOADS.labels(outcome="ok").inc()
        metrics.CACHE_BYTES.set(self.bytes)
        log.info("artifact fetched", digest=digest, bytes=size, ms=round((time.monotonic() - started) * 1000))
        return path

    async def _download_twice(self, digest: str) -> Path:
        reserve = partial(self._reserve, digest)
        try:
            return await self._source.download(digest, self._directory, reserve)
        except DigestMismatch as error:
            log.warning("artifact corrupt, fetching it once more", digest=digest, error=str(error))
            metrics.DOWNLOADS.labels(outcome="corrupt").inc()
            return await self._source.download(digest, self._directory, reserve)

    def _reserve(self, digest: str, size_bytes: int) -> int:
        """Count ``size_bytes`` for a running download if so many can be had; how many can."""
        held = sum(self._sizes[name] for name in self._users if name in self._sizes)
        others = sum(size for name, size in self._incoming.items() if name != digest)
        room = self._max_bytes - held - others
        if self._incoming.get(digest, 0) < size_bytes <= room:
            self._incoming[digest] = size_bytes
            self._make_room()
        return max(0, room)

    def _make_room(self, keep: str = "") -> None:
        for digest in list(self._sizes):
            if self.bytes <= self._max_bytes:
                return
            if digest in self._users or digest == keep:
                continue
            with contextlib.suppress(OSError):
                (self._directory / digest).unlink()
            self._forget(digest)
            metrics.CACHE_EVICTIONS.inc()
            log.info("artifact removed from the cache to make room", digest=digest)

    def _keep(self, digest: str, size_bytes: int) -> None:
        self._forget(digest)
        self._sizes[digest] = size_bytes
        self._bytes += size_bytes

    def _forget(self, digest: str) -> None:
        self._bytes -= self._sizes.pop(digest, 0)
        metrics.CACHE_BYTES.set(self.bytes)

    def _raise_remembered(self, digest: str) -> None:
        failed = self._failures.get(digest)
        if failed is None:
            return
        failed_at, info = failed
        if time.monotonic() - failed_at >= self._failure_memory_s:
            del self._failures[digest]
            return
        raise ShoalError(info.code, info.message, hint=info.hint)

    def _remember_failure(self, digest: str, error: ShoalError) -> None:
        metrics.DOWNLOADS.labels(outcome=str(error.code)).inc()
        self._failures[digest] = (time.monotonic(), error.info)
        while len(self._failures) > MAX_REMEMBERED_FAILURES:
            self._failures.popitem(last=False)
