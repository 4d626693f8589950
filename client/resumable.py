"""Sends files in checked chunks that survive a cut connection and a restart of either side (tus 1.0)."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import httpx
import msgspec

from client.errors import ApiError, ClientError, Unreachable
from client.packing import LocalFile, Package
from client.uploading import Progress

CHUNK_BYTES = 8 * 1024 * 1024
CHUNK_TYPE = "application/offset+octet-stream"
# a line that is away for longer than all pauses together ends the push; the next push goes on where this one stopped
PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
# the server's word may change by itself: another request holds the upload, it restarts, it has no room this moment
PASSING = frozenset({423, 429, 500, 502, 503, 504})

T = TypeVar("T")
Request = Callable[..., httpx.Response]


class Unfinished(msgspec.Struct, frozen=True):
    """An upload as the server lists it; ``offset`` is absent when its bytes are gone."""

    id: str
    path: str
    name: str
    length: int
    offset: int | None
    sha256: str
    url: str
    role: str = "adapter"


class Page(msgspec.Struct, frozen=True):
    """One page of unfinished uploads."""

    results: list[Unfinished]
    next: str | None = None


@dataclass
class ResumableTransfer:
    """All files of one push. ``request`` sends a request and raises ``Unreachable`` or ``ApiError``."""

    request: Request
    api: str
    name: str
    metadata: Mapping[str, str]
    progress: Progress | None = None
    note: Callable[[str], None] = lambda text: None
    sent_bytes: int = 0
    total_bytes: int = 0
    _open: dict[tuple[str, str, str], Unfinished] = field(default_factory=dict)

    def send(self, package: Package, evaluation: LocalFile | None = None) -> httpx.Response:
        """Send what the server lacks and make a version of it; the answer of the completion.

        Raises ``Unreachable`` when the server stays away, ``ApiError`` when it says no, ``ClientError`` when a file
        changes while it is sent.
        """
        files = [(file, "adapter") for file in package.files]
        if evaluation is not None:
            files.append((evaluation, "evaluation"))
        self.total_bytes = sum(file.size_bytes for file, _ in files)
        self._open = self._unfinished()
        ids = [self._send_file(file, role) for file, role in files]
        body = {"name": self.name, "uploads": ids[1:]}
        return self._patiently(partial(self.request, "POST", f"{self.api}uploads/{ids[0]}/complete/", json=body))

    def _unfinished(self) -> dict[tuple[str, str, str], Unfinished]:
        """What an earlier push has left, by path, content and role: nothing has to be remembered on this side."""
        found: dict[tuple[str, str, str], Unfinished] = {}
        url: str | None = f"{self.api}uploads/"
        while url:
            page = msgspec.json.decode(self._patiently(partial(self.request, "GET", url)).content, type=Page)
            for upload in page.results:
                if upload.name == self.name and upload.offset is not None and upload.sha256:
                    found.setdefault((upload.path, upload.sha256, upload.role), upload)
            url = page.next
        return found

    def _send_file(self, file: LocalFile, role: str) -> str:
        sha256 = _sha256(file.path)
        upload = self._open.get((file.name, sha256, role))
        if upload is not None and upload.length == file.size_bytes:
            offset = upload.offset or 0
            if 0 < offset < upload.length:
                self.note(f"{file.name}: goes on at {offset:,} of {upload.length:,} bytes")
        else:
            upload = self._begin(file, sha256, role)
            offset = upload.offset or 0
            if offset:
                self.note(f"{file.name}: the server has it already, nothing is sent")
        self._advance(offset)
        with file.path.open("rb") as source:
            while offset < file.size_bytes:
                source.seek(offset)
                chunk = source.read(min(CHUNK_BYTES, file.size_bytes - offset))
                if not chunk:
                    raise ClientError(f"{file.path} became shorter while it was sent.")
                moved = self._patiently(partial(self._send_chunk, upload.url, offset, chunk))
                self._advance(moved - offset)
                offset = moved
        return upload.id

    def _begin(self, file: LocalFile, sha256: str, role: str) -> Unfinished:
        described = {
            **self.metadata, "name": self.name, "filename": file.name, "sha256": sha256,
            "package_bytes": str(self.total_bytes), "role": role,
        }  # fmt: skip
        headers = {
            "Tus-Resumable": "1.0.0",
            "Upload-Length": str(file.size_bytes),
            "Upload-Metadata": ",".join(f"{key} {_base64(text.encode())}" for key, text in described.items() if text),
        }
        answer = self._patiently(partial(self.request, "POST", f"{self.api}uploads/", headers=headers))
        return msgspec.json.decode(answer.content, type=Unfinished)

    def _send_chunk(self, url: str, offset: int, chunk: bytes) -> int:
        """The offset after it. When the server is elsewhere, what it has is believed."""
        headers = {
            "Tus-Resumable": "1.0.0",
            "Content-Type": CHUNK_TYPE,
            "Upload-Offset": str(offset),
            "Upload-Checksum": f"sha256 {_base64(hashlib.sha256(chunk).digest())}",
        }
        try:
            answer = self.request("PATCH", url, headers=headers, content=chunk)
        except ApiError as error:
            if error.code != "offset_mismatch":
                raise
            # the answer to this chunk, or to one before, was lost on the way
            answer = self.request("HEAD", url, headers={"Tus-Resumable": "1.0.0"})
        return int(answer.headers["upload-offset"])

    def _advance(self, size: int) -> None:
        self.sent_bytes += size
        if self.progress is not None:
            self.progress(self.sent_bytes, self.total_bytes)

    def _patiently(self, attempt: Callable[[], T]) -> T:
        """What ``attempt`` gives, tried again with longer and longer pauses while the line or the server is away."""
        for pause_s in PAUSES_S:
            try:
                return attempt()
            except (Unreachable, ApiError) as error:
                if isinstance(error, ApiError) and error.status not in PASSING and error.code != "checksum_mismatch":
                    raise
                self.note(f"{str(error).splitlines()[0]}; trying again in {pause_s:g} s")
            time.sleep(pause_s)
        return attempt()


def _sha256(path: Path) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
