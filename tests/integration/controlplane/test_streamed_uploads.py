"""An upload is written once, while it travels: no second copy on disk, none in memory, nothing left of a broken one."""

from __future__ import annotations

import dataclasses
import hashlib
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.integration.controlplane.site import Site, running_web, until
from tests.servers import free_port

pytestmark = pytest.mark.timeout(300)

MIB = 1024**2
UPLOAD_BYTES = 200 * MIB


def counted(pid: int, file: str, name: str) -> int:
    """The number that ``/proc/<pid>/<file>`` gives for ``name``."""
    lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


@pytest.fixture
def web(site: Site) -> Iterator[tuple[int, int]]:
    """Port and process id of a web process that takes uploads of any size."""
    roomy = dataclasses.replace(site, environment={**site.environment, "SHOAL_UPLOAD_MAX_BYTES": str(1024 * MIB)})
    port = free_port()
    with running_web(roomy, port) as pid:
        yield port, pid


def test_a_large_upload_is_written_once_and_not_held_in_memory(site: Site, web: tuple[int, int]) -> None:
    port, pid = web
    opening = (
        b'--x\r\nContent-Disposition: form-data; name="name"\r\n\r\nadmin/large\r\n'
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="large.safetensors"\r\n\r\n'
    )
    closing = b"\r\n--x--\r\n"
    block = bytes(range(256)) * (MIB // 256)

    def body() -> Iterator[bytes]:
        yield opening
        for _ in range(UPLOAD_BYTES // MIB):
            yield block
        yield closing

    headers = {
        "Authorization": f"Bearer {site.secrets['api_key']}",
        "Content-Type": "multipart/form-data; boundary=x",
        "Content-Length": str(len(opening) + UPLOAD_BYTES + len(closing)),
    }
    address = f"http://127.0.0.1:{port}/api/v1/adapters/"
    # a small request first, so that what is loaded once does not count
    httpx.post(address, headers={**headers, "Content-Length": "5"}, content=b"--x--")
    peak_kb, written_bytes = counted(pid, "status", "VmHWM"), counted(pid, "io", "wchar")
    received = httpx.post(address, headers=headers, content=body(), timeout=120)
    assert received.status_code == 201, received.text
    assert counted(pid, "io", "wchar") - written_bytes < 1.2 * UPLOAD_BYTES
    assert counted(pid, "status", "VmHWM") - peak_kb < 40 * 1024
    assert list((site.home / "incoming").iterdir()) == []
    digest = hashlib.sha256()
    for _ in range(UPLOAD_BYTES // MIB):
        digest.update(block)
    files = {file["path"]: (file["sha256"], file["size_bytes"]) for file in received.json()["files"]}
    assert files == {"large.safetensors": (digest.hexdigest(), UPLOAD_BYTES)}


def test_a_refused_upload_is_not_written(web: tuple[int, int]) -> None:
    port, pid = web
    files = {"file": ("a.safetensors", b"x" * 20 * MIB)}
    url, headers = f"http://127.0.0.1:{port}/api/v1/adapters/", {"Authorization": "Bearer shoal_wrong"}
    # with what an upload loads once
    httpx.post(url, headers=headers, files={"file": ("a", b"x")})
    written_bytes = counted(pid, "io", "wchar")
    refused = httpx.post(url, headers=headers, data={"name": "admin/refused"}, files=files, timeout=60)
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
    assert counted(pid, "io", "wchar") - written_bytes < MIB


@pytest.mark.parametrize("page", ["/api/v1/adapters/", "/upload/"])
def test_a_connection_cut_in_the_middle_of_the_second_file_leaves_nothing(site: Site, page: str) -> None:
    incoming = site.home / "incoming"
    part = '--x\r\nContent-Disposition: form-data; name="files[]"; filename="{}"\r\n\r\n'
    head = (
        f"POST {page} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {site.secrets['api_key']}\r\n"
        # Django's form protection reads the body only where there is a token to compare
        f"Cookie: csrftoken={'t' * 32}\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 7000000\r\n\r\n"
        '--x\r\nContent-Disposition: form-data; name="name"\r\n\r\nadmin/cut\r\n'
    )
    with socket.create_connection(("127.0.0.1", site.web_port), timeout=20) as connection:
        connection.sendall(head.encode() + part.format("whole").encode() + b"y" * MIB + b"\r\n")
        connection.sendall(part.format("half").encode() + b"y" * 3 * MIB)
        # both files are on disk while the body still travels
        until(lambda: len(list(incoming.iterdir())) == 2, what="two files that are being received")
    until(lambda: list(incoming.iterdir()) == [], what="an empty incoming directory")
    with site.api() as api:
        assert api.get("adapters/admin/cut/").status_code == 404
