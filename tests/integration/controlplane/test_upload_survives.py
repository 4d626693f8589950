"""A 300 MB upload whose connection is cut five times and whose web process is killed arrives as it was sent, in flat
memory; a standard client does the same."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest
from tusclient.client import TusClient

from tests.integration.controlplane.site import Site, running_web
from tests.integration.controlplane.test_streamed_uploads import counted
from tests.integration.controlplane.tus_client import begin, checksum, cut_patch, end_of_cut, offset_of, patch
from tests.servers import free_port

pytestmark = pytest.mark.timeout(300)

MIB = 1024**2
SIZE = 300 * MIB
MOST_WEB_KB = 300 * 1000


@contextlib.contextmanager
def roomy_web(site: Site) -> Iterator[tuple[int, httpx.Client]]:
    """Process id of a web process that takes large uploads, and a client of it."""
    environment = {**site.environment, "SHOAL_UPLOAD_MAX_BYTES": str(1024 * MIB)}
    port = free_port()
    web = Site(site.home, environment, site.nats, site.valkey, port, site.secrets)
    with running_web(web, port) as pid, web.api() as client:
        yield pid, client


def content(at: int, size: int) -> bytes:
    """Bytes ``at`` … of a file without a repetition within a block's length, made as they are sent."""
    block = 65_536
    first, last = at // block, (at + size - 1) // block
    data = b"".join(
        hashlib.shake_128(number.to_bytes(8, "big")).digest(64) * (block // 64) for number in range(first, last + 1)
    )
    return data[at - first * block :][:size]


def test_five_cuts_a_kill_and_a_restart(site: Site) -> None:
    whole = hashlib.sha256()
    for at in range(0, SIZE, 4 * MIB):
        whole.update(content(at, 4 * MIB))
    with roomy_web(site) as (pid, api):
        begun = begin(api, SIZE, name="admin/survives", filename="m.safetensors", sha256=whole.hexdigest())
        assert begun.status_code == 201, begun.text
        path = begun.headers["location"].partition("/api/v1/")[2]
        url = str(api.base_url.join(path))
        for cut in (3 * MIB, 50 * MIB + 17, 50 * MIB + 18, 149 * MIB):
            at = offset_of(api, path)
            cut_patch(api, site.home, url, at, content(at, cut - at + 4 * MIB), cut - at)
            # what the server had not taken from the socket is lost with it, and no more
            assert max(at, cut - MIB) <= end_of_cut(api, site.home, url) <= cut
        at = offset_of(api, path)
        peak_kb = counted(pid, "status", "VmHWM")
        # the fifth cut is the process's death in the middle of a checked chunk: nothing of that chunk counts
        chunk = content(at, 8 * MIB)
        killed = partial(os.kill, pid, signal.SIGKILL)
        cut_patch(api, site.home, url, at, chunk, 5 * MIB, before_cut=killed, Upload_Checksum=checksum(chunk))
    with roomy_web(site) as (pid, api):
        assert offset_of(api, path) == at
        while at < SIZE:
            chunk = content(at, min(32 * MIB, SIZE - at))
            sent = patch(api, path, at, chunk, Upload_Checksum=checksum(chunk))
            assert sent.status_code == 204, sent.text
            at = int(sent.headers["upload-offset"])
        made = api.post(f"{path}complete/", json={})
        assert made.status_code == 201, made.text
        assert [(file["sha256"], file["size_bytes"]) for file in made.json()["files"]] == [(whole.hexdigest(), SIZE)]
        peak_kb = max(peak_kb, counted(pid, "status", "VmHWM"))
    assert peak_kb < MOST_WEB_KB


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_standard_client(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "adapter_model.safetensors"
    file.write_bytes(content(0, 3 * MIB + 5))
    client = TusClient(f"{site.url}/api/v1/uploads/", headers={"Authorization": f"Bearer {site.secrets['api_key']}"})
    described = {"name": "admin/standard", "filename": file.name}
    with file.open("rb") as stream:
        uploader = client.uploader(file_stream=stream, chunk_size=MIB, metadata=described, upload_checksum=True)
        uploader.upload_chunk()  # type: ignore[no-untyped-call]
        resumed = client.uploader(file_stream=stream, chunk_size=MIB, url=uploader.url, upload_checksum=True)
        assert resumed.offset == MIB
        resumed.upload()
    with site.api() as api:
        made = api.post(f"{uploader.url}complete/", json={})
        assert made.status_code == 201, made.text
        assert made.json()["files"][0]["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
