"""Raw requests of a resumable upload, as any client of the protocol sends them."""

from __future__ import annotations

import base64
import hashlib
import socket
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tests.integration.controlplane.site import until

CHUNK = "application/offset+octet-stream"


def metadata(**pairs: str) -> str:
    """The header ``Upload-Metadata``."""
    return ",".join(f"{key} {base64.b64encode(value.encode()).decode()}" for key, value in pairs.items())


def checksum(data: bytes, algorithm: str = "sha256") -> str:
    """The header ``Upload-Checksum``."""
    return f"{algorithm} {base64.b64encode(hashlib.new(algorithm, data).digest()).decode()}"


def begin(api: httpx.Client, size: int, **pairs: str) -> httpx.Response:
    """A new upload of ``size`` bytes."""
    headers = {"Tus-Resumable": "1.0.0", "Upload-Length": str(size), "Upload-Metadata": metadata(**pairs)}
    return api.post("uploads/", headers=headers)


def patch(api: httpx.Client, url: str, offset: int, data: bytes, **headers: str) -> httpx.Response:
    """One chunk; further headers as ``Upload_Checksum=…``."""
    sent = {"Tus-Resumable": "1.0.0", "Content-Type": CHUNK, "Upload-Offset": str(offset)}
    return api.patch(
        url, headers=sent | {name.replace("_", "-"): value for name, value in headers.items()}, content=data
    )


def offset_of(api: httpx.Client, url: str) -> int:
    """What HEAD says."""
    answer = api.head(url, headers={"Tus-Resumable": "1.0.0"})
    assert answer.status_code == 200, answer.status_code
    assert answer.headers["cache-control"] == "no-store"
    return int(answer.headers["upload-offset"])


def being_written(part: Path) -> bool:
    """Whether a request holds the lock of the file; asked of the kernel, since taking it would be in the way."""
    inode = f":{part.stat().st_ino}"
    return any(line.split()[5].endswith(inode) for line in Path("/proc/locks").read_text().splitlines())


def part_of(home: Path, url: str) -> Path:
    """The file of an upload."""
    return home / "uploads" / f"{url.rstrip('/').rpartition('/')[2]}.part"


def cut_patch(
    api: httpx.Client,
    home: Path,
    url: str,
    offset: int,
    data: bytes,
    sent: int,
    before_cut: Callable[[], None] = lambda: None,
    **headers: str,
) -> None:
    """A chunk whose connection breaks after ``sent`` of its bytes, once the server is writing them."""
    address = urlsplit(url)
    lines = {
        "Host": address.netloc,
        "Authorization": api.headers["authorization"],
        "Tus-Resumable": "1.0.0",
        "Content-Type": CHUNK,
        "Upload-Offset": str(offset),
        "Content-Length": str(len(data)),
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
        connection.sendall(f"PATCH {address.path} HTTP/1.1\r\n{head}\r\n".encode())
        connection.sendall(memoryview(data)[:sent])
        until(lambda: being_written(part_of(home, url)), what="the lock of the request")
        before_cut()


def end_of_cut(api: httpx.Client, home: Path, url: str) -> int:
    """The offset once the cut request has let go."""
    until(lambda: not being_written(part_of(home, url)), what="the end of the cut request")
    return offset_of(api, url)
