"""Streams uploaded files to disk while hashing and counting them."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import FileUploadHandler, StopUpload
from django.http import HttpRequest

from wire.errors import Code, ShoalError

FILE_FIELDS = frozenset({"file", "files", "files[]"})
# rows to measure the version on: a file of the request, none of the adapter
EVALUATION_FIELD = "evaluation"

# judges the fields that came before the first file; raises ``ShoalError``
Gate = Callable[[Mapping[str, str]], None]


class IncomingFile(UploadedFile):  # type: ignore[type-arg]  # generic in the stubs only
    """A received file below ``incoming``. ``relative_path`` is the path its sender gave. Closing it removes the file
    unless it was moved into the store before."""

    def __init__(self, path: Path, relative_path: str, sha256: str, size_bytes: int) -> None:
        super().__init__(file=path.open("rb"), name=relative_path, size=size_bytes)
        self.path = path
        self.relative_path = relative_path
        self.sha256 = sha256
        self.size_bytes = size_bytes

    def temporary_file_path(self) -> str:
        return str(self.path)

    def close(self) -> None:
        super().close()
        self.path.unlink(missing_ok=True)


class _Transfer:
    """Files of one request; ``close`` (Django calls it when parsing fails) removes all of them."""

    def __init__(self) -> None:
        self.stream: IO[bytes] | None = None
        self.path: Path | None = None
        self.complete: list[IncomingFile] = []

    def close(self) -> None:
        self.drop_current()
        for file in self.complete:
            file.close()

    def drop_current(self) -> None:
        if self.stream is not None:
            with contextlib.suppress(OSError):
                self.stream.close()
            self.stream = None
        if self.path is not None:
            self.path.unlink(missing_ok=True)
            self.path = None


class IncomingUploadHandler(FileUploadHandler):
    """The project's only upload handler. It never raises into Django's parser, which may run inside a middleware:
    what is wrong is kept and raised by :func:`raise_upload_error` where the view can answer it."""

    chunk_size = 1024 * 1024

    def __init__(self, request: HttpRequest | None = None) -> None:
        super().__init__(request)
        self.file: Any = _Transfer()
        self.limit_bytes = int(settings.SHOAL.upload_max_bytes)
        self.received_bytes = 0
        self.relative_path = ""
        # set by the parser: the form's fields so far
        self.fields: Mapping[str, str] = {}
        self.gate: Gate | None = getattr(request, "upload_gate", None)

    def new_file(
        self,
        field_name: str,
        file_name: str,
        content_type: str,
        content_length: int | None,
        charset: str | None = None,
        content_type_extra: dict[str, bytes] | None = None,
    ) -> None:
        super().new_file(field_name, file_name, content_type, content_length, charset, content_type_extra)
        self.relative_path = file_name
        if field_name not in FILE_FIELDS and field_name != EVALUATION_FIELD:
            self._stop(
                ShoalError(
                    Code.INVALID_REQUEST,
                    f"Files are not taken in the field {field_name[:80]!r}.",
                    param=field_name[:80],
                    hint="Use `file` for one file and `files[]` for several.",
                )
            )
        self._ask_gate()
        directory = Path(settings.SHOAL_INCOMING_DIR)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self.file.path = directory / f"{secrets.token_hex(16)}.part"
            self.file.stream = self.file.path.open("xb")
        except OSError as error:
            self._stop(disk_error(error))
        self.hash = hashlib.sha256()
        self.size_bytes = 0

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        self.received_bytes += len(raw_data)
        self.size_bytes += len(raw_data)
        if self.received_bytes > self.limit_bytes:
            self._stop(
                ShoalError(
                    Code.PAYLOAD_TOO_LARGE,
                    f"The files are larger than {self.limit_bytes} bytes.",
                    hint="Upload the adapter's own files only, without checkpoints and optimizer states.",
                )
            )
        self.hash.update(raw_data)
        try:
            self.file.stream.write(raw_data)
        except OSError as error:
            self._stop(disk_error(error))

    def file_complete(self, file_size: int) -> IncomingFile:
        try:
            self.file.stream.close()
        except OSError as error:
            self._stop(disk_error(error))
        received = IncomingFile(self.file.path, self.relative_path, self.hash.hexdigest(), self.size_bytes)
        self.file.complete.append(received)
        self.file.stream = self.file.path = None
        return received

    def upload_interrupted(self) -> None:
        self.file.close()

    def _ask_gate(self) -> None:
        gate, self.gate = self.gate, None
        if gate is not None:
            try:
                gate(self.fields)
            except ShoalError as error:
                self._stop(error)

    def _stop(self, error: ShoalError) -> None:
        self.file.close()
        if self.request is not None:
            self.request.META["SHOAL_UPLOAD_ERROR"] = error
        # nothing is read any further: the answer goes out while the rest still travels
        raise StopUpload(connection_reset=True)


def raise_upload_error(meta: Mapping[str, Any]) -> None:
    """Raise what the handler found wrong while the body of this request was parsed."""
    error = meta.get("SHOAL_UPLOAD_ERROR")
    if isinstance(error, ShoalError):
        raise error


def disk_error(error: OSError) -> ShoalError:
    """What to answer when bytes could not be kept."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return ShoalError(
            Code.STORAGE_FULL,
            "The server has no room left for this upload.",
            hint="Tell the people who run it; nothing of the upload was kept.",
        )
    return ShoalError(
        Code.INTERNAL, f"The upload could not be written: {error.strerror}.", hint="Try again; nothing was kept."
    )
