"""No room for an upload: a clear answer, nothing kept, and the next small upload works."""

from __future__ import annotations

import httpx
import pytest

from tests.integration.controlplane.adapters import lora_files, multipart
from tests.integration.controlplane.site import Site, running_web, until
from tests.servers import free_port

pytestmark = pytest.mark.timeout(300)


def test_full_disk_is_said_and_leaves_nothing(site: Site) -> None:
    port = free_port()
    headers = {"Authorization": f"Bearer {site.secrets['api_key']}"}
    with (
        running_web(site, port, file_bytes=4 * 1024**2),
        httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1/", headers=headers, timeout=60) as api,
    ):
        answer = api.post("adapters/", data={"name": "admin/full"}, files={"file": ("a", b"x" * 6 * 1024**2)})
        assert (answer.status_code, answer.json()["error"]["code"]) == (507, "storage_full")
        until(lambda: not list((site.home / "incoming").iterdir()), what="an empty incoming directory")
        small = api.post("adapters/", data={"name": "admin/full"}, files=multipart(lora_files(900, rank=1)))
        assert small.status_code == 201
