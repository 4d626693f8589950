"""One download of an artifact from the control plane: to a temporary name, resumed by range, checked, renamed."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import httpx

from wire.errors import Code, ShoalError

RESUMES = 2

# Takes the bytes that a download needs in sum and tells how many it may have.
Reserve = Callable[[int], int]


class DigestMismatch(ShoalError):
    """The bytes received are not what the digest names."""


class ArtifactSource:
    """The control plane's artifact address, with this machine's key."""

    def __init__(self, web_url: str, machine_key: str, timeout_s: float) -> None:
        self._base = f"{web_url.rstrip('/')}/api/v1/artifacts/"
        headers = {"Authorization": f"Bearer {machine_key}"} if machine_key else {}
        # Bytes are hashed as they are stored, so a proxy must not compress them on the way.
        headers["Accept-Encoding"] = "identity"
        self._client = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(timeout_s, connect=min(5.0, timeout_s)),
            follow_redirects=True,
            trust_env=False,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def download(self, digest: str, directory: Path, reserve: Reserve) -> Path:
        """Fetch ``digest`` into ``directory``; the final path. Raises ``ShoalError`` ARTIFACT_UNAVAILABLE with what
        went wrong (address, status, disk) or ``DigestMismatch``. No byte is written beyond what ``reserve`` allows."""
        try:
            handle, name = tempfile.mkstemp(prefix=f".{digest[:16]}-", suffix=".part", dir=directory)
        except OSError as error:
            raise _disk_error(digest, error) from error
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                found = await self._fill(digest, file.fileno(), reserve)
                if found != digest:
                    raise DigestMismatch(
                        Code.ARTIFACT_CORRUPT,
                        f"Artifact {digest} from {self._base} has other bytes than its digest says (SHA-256 {found}).",
                        hint="Upload the version again, or repair the artifact store.",
                    )
                # A slow disk must not stop the loop that serves everybody else.
                await asyncio.to_thread(os.fsync, file.fileno())
            return _publish(temporary, directory / digest)
        except OSError as error:
            raise _disk_error(digest, error) from error
        finally:
            _remove(temporary)

    async def _fill(self, digest: str, file: int, reserve: Reserve) -> str:
        """Write the body to ``file`` and return its SHA-256; a cut connection is resumed at the byte on disk."""
        hasher, written = hashlib.sha256(), 0
        for attempt in range(RESUMES + 1):
            try:
                async with self._client.stream(
                    "GET", f"{self._base}{digest}/", headers={"Range": f"bytes={written}-"} if written else {}
                ) as response:
                    self._check_status(digest, response.status_code, resumed=written > 0)
                    if written and response.status_code != 206:
                        os.ftruncate(file, 0)
                        os.lseek(file, 0, os.SEEK_SET)
                        hasher, written = hashlib.sha256(), 0
                    # The whole is reserved first: a doomed download shall drive nothing else out of the cache.
                    _check_room(digest, written + int(response.headers.get("Content-Length", 0)), reserve)
                    async for chunk in response.aiter_bytes():
                        written += len(chunk)
                        _check_room(digest, written, reserve)
                        hasher.update(chunk)
                        _write_all(file, chunk)
                return hasher.hexdigest()
            except httpx.HTTPError as error:
                # Only a cut connection is worth another try: a redirect loop or a broken encoding stays what it is.
                if not isinstance(error, httpx.TransportError) or not written or attempt == RESUMES:
                    raise self._unreachable(digest, error) from error
        raise AssertionError("the last attempt returns or raises")

    def _check_status(self, digest: str, status: int, *, resumed: bool) -> None:
        if status == 200 or (resumed and status == 206):
            return
        todo = {
            401: "The control plane does not know this machine's key: set SHOAL_MACHINE_KEY to a valid one.",
            403: "This machine's key lacks the scope `machine`: issue one that has it.",
            404: "The artifact store does not have it: the version was deleted, or the store lost it.",
        }.get(status, "Look at the control plane's log.")
        raise ShoalError(
            Code.ARTIFACT_UNAVAILABLE,
            f"Artifact {digest} cannot be fetched: {self._base} answered {status}.",
            hint=todo,
        )

    def _unreachable(self, digest: str, error: httpx.HTTPError) -> ShoalError:
        kind = "timed out" if isinstance(error, httpx.TimeoutException) else "failed"
        return ShoalError(
            Code.ARTIFACT_UNAVAILABLE,
            f"Artifact {digest} cannot be fetched: the connection to {self._base} {kind} ({type(error).__name__}).",
            hint="Adapters already in this machine's cache go on; this one is tried again on its next request.",
        )


def _write_all(file: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(file, view) :]


def _publish(temporary: Path, final: Path) -> Path:
    """Give the checked file its name, durably."""
    temporary.replace(final)
    handle = os.open(final.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    return final


def _remove(temporary: Path) -> None:
    temporary.unlink(missing_ok=True)


def _check_room(digest: str, size_bytes: int, reserve: Reserve) -> None:
    room_bytes = reserve(size_bytes)
    if size_bytes <= room_bytes:
        return
    raise ShoalError(
        Code.ARTIFACT_UNAVAILABLE,
        f"Artifact {digest} does not fit this machine's cache: {room_bytes} bytes could be freed for it.",
        hint="Raise SHOAL_CACHE_BYTES, or wait until artifacts in use are done.",
    )


def _disk_error(digest: str, error: OSError) -> ShoalError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return ShoalError(
        Code.ARTIFACT_UNAVAILABLE,
        f"Artifact {digest} cannot be stored: {'the disk is full' if full else error.strerror or error}.",
        hint="Free space below SHOAL_CACHE_DIR." if full else "Check SHOAL_CACHE_DIR and its permissions.",
    )
