"""Raw requests of a resumable upload, as any client of the protocol sends them."""

from __future__ import annotations

import base64
import hashlib
import socket
from urllib.parse import urlsplit

import httpx

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


def cut_patch(api: httpx.Client, url: str, offset: int, data: bytes, sent: int, **headers: str) -> None:
    """A chunk whose connection breaks after ``sent`` of its bytes."""
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
