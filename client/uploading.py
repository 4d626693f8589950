"""Streams a multipart body from disk: memory stays flat whatever the size, and progress is what was handed out."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from client.packing import LocalFile, Package

Progress = Callable[[int, int], None]
CHUNK_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class MultipartBody:
    """A multipart/form-data body (RFC 7578). Fields go first: the server knows the name before bytes come."""

    package: Package
    fields: dict[str, str]
    boundary: str = field(default_factory=lambda: secrets.token_hex(16))
    progress: Progress | None = None
    # rows to measure the version on
    evaluation: LocalFile | None = None

    def headers(self) -> dict[str, str]:
        """Type and exact length, so that the server can refuse before the bytes travel."""
        return {
            "Content-Type": f"multipart/form-data; boundary={self.boundary}",
            "Content-Length": str(self._length()),
        }

    def stream(self) -> Iterator[bytes]:
        """Chunks of the body."""
        sent, total = 0, sum(file.size_bytes for _, file in self._files())
        yield self._head()
        for name, file in self._files():
            yield self._file_head(name, file)
            left = file.size_bytes
            with file.path.open("rb") as source:
                while left and (chunk := source.read(min(CHUNK_BYTES, left))):
                    left -= len(chunk)
                    sent += len(chunk)
                    yield chunk
                    if self.progress is not None:
                        self.progress(sent, total)
            yield b"\r\n"
        yield self._tail()

    def _length(self) -> int:
        parts = sum(len(self._file_head(name, file)) + file.size_bytes + 2 for name, file in self._files())
        return len(self._head()) + parts + len(self._tail())

    def _files(self) -> list[tuple[str, LocalFile]]:
        """Each file with the field it goes into."""
        own = [("files[]", file) for file in self.package.files]
        return own if self.evaluation is None else [*own, ("evaluation", self.evaluation)]

    def _head(self) -> bytes:
        fields = [*self.fields.items(), *(("paths[]", file.name) for file in self.package.files)]
        return "".join(
            f'--{self.boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
            for name, value in fields
        ).encode()

    def _file_head(self, name: str, file: LocalFile) -> bytes:
        quoted = file.path.name.replace("\\", "%5C").replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
        return (
            f'--{self.boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="{quoted}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        ).encode()

    def _tail(self) -> bytes:
        return f"--{self.boundary}--\r\n".encode()
