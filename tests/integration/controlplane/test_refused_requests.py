"""Every refusal has a code, names the thing and keeps nothing; another team's names do not exist."""

from __future__ import annotations

import hashlib
import socket
from typing import Any

import httpx
import pytest

from tests.integration.controlplane.adapters import lora_files, multipart
from tests.integration.controlplane.site import Site, until

pytestmark = pytest.mark.timeout(300)


def refusal(response: httpx.Response) -> tuple[int, str]:
    error = response.json()["error"]
    assert set(error) >= {"message", "type", "code", "param", "hint"}
    assert error["message"]
    return response.status_code, error["code"]


def incoming(site: Site) -> list[str]:
    return [path.name for path in (site.home / "incoming").glob("*")]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("admin/Capitals", "invalid_name"),
        ("admin/two words", "invalid_name"),
        ("admin/a/b", "invalid_name"),
        ("admin/..", "invalid_name"),
        ("admin/\N{FISH}", "invalid_name"),
        ("admin/" + "x" * 64, "invalid_name"),
        ("plain", "invalid_name"),
        ("strangers/adapter", "not_found"),
    ],
)
def test_names(site: Site, api: httpx.Client, name: str, code: str) -> None:
    answer = api.post("adapters/", data={"name": name}, files=multipart(lora_files(1)))
    assert refusal(answer)[1] == code, answer.text
    assert until(lambda: not incoming(site), what="an empty incoming directory")


@pytest.mark.parametrize(
    ("fields", "files", "expected"),
    [
        ({}, {"file": ("a.safetensors", b"x")}, (400, "invalid_request")),
        ({"name": "admin/x"}, {"other": ("a.safetensors", b"x")}, (400, "invalid_request")),
        ({"name": "admin/x", "base_model": "no/such"}, {"file": ("a", b"x")}, (400, "invalid_request")),
        ({"name": "admin/x", "kind": "poem"}, {"file": ("a", b"x")}, (400, "invalid_request")),
        ({"name": "admin/x", "paths[]": ["a", "b"]}, {"file": ("a", b"x")}, (400, "upload_invalid")),
        ({"name": "admin/x"}, {"file": ("a", b"x" * 9 * 1024**2)}, (413, "payload_too_large")),
    ],
)
def test_uploads(
    site: Site, api: httpx.Client, fields: dict[str, Any], files: dict[str, Any], expected: tuple[int, str]
) -> None:
    assert refusal(api.post("adapters/", data=fields, files=files)) == expected
    assert until(lambda: not incoming(site), what="an empty incoming directory")
    assert api.get("adapters/admin/x/").status_code == 404


def test_no_file_and_no_form(api: httpx.Client) -> None:
    assert refusal(api.post("adapters/", json={"name": "admin/x"})) == (400, "upload_invalid")
    assert refusal(api.post("adapters/", content=b"{", headers={"content-type": "application/json"}))[0] == 400
    assert refusal(api.post("adapters/", content=b"x", headers={"content-type": "text/plain"}))[0] == 415


def test_too_large_is_said_before_the_bytes_travel(site: Site) -> None:
    head = (
        f"POST /api/v1/adapters/ HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {site.secrets['api_key']}\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 99999999\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", site.web_port), timeout=20) as connection:
        connection.sendall(head.encode())
        answer = b""
        while part := connection.recv(65536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"payload_too_large" in answer


def test_a_body_without_a_length_is_counted(site: Site, api: httpx.Client) -> None:
    def chunks() -> Any:
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        for _ in range(10):
            yield b"x" * 1024**2

    answer = api.post("adapters/", content=chunks(), headers={"content-type": "multipart/form-data; boundary=x"})
    assert refusal(answer) == (413, "payload_too_large")


def test_a_body_that_ends_early_keeps_nothing(site: Site, api: httpx.Client) -> None:
    head = (
        f"POST /api/v1/adapters/ HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {site.secrets['api_key']}\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 500000\r\n\r\n"
        '--x\r\nContent-Disposition: form-data; name="name"\r\n\r\nadmin/early\r\n'
        '--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n' + "y" * 1000
    )
    with socket.create_connection(("127.0.0.1", site.web_port), timeout=20) as connection:
        connection.sendall(head.encode())
    assert until(lambda: not incoming(site), what="an empty incoming directory")
    assert api.get("adapters/admin/early/").status_code == 404


def test_keys_scopes_and_other_teams(site: Site, api: httpx.Client) -> None:
    with httpx.Client(base_url=f"{site.url}/api/v1/") as nobody:
        answer = nobody.get("adapters/")
        assert refusal(answer) == (401, "invalid_api_key")
        assert answer.headers["www-authenticate"].startswith("Bearer")
        wrong = nobody.get("adapters/", headers={"Authorization": "Bearer shoal_wrong"})
        assert refusal(wrong) == (401, "invalid_api_key")
    made = api.post("keys/", json={"name": "reader", "scopes": ["read"]})
    assert made.status_code == 201, made.text
    assert len(made.json()["secret"]) == len("shoal_") + 43
    assert all("secret" not in row for row in api.get("keys/").json()["results"])
    with site.api(made.json()["secret"]) as reader:
        assert reader.get("adapters/").status_code == 200
        answer = reader.post("adapters/", data={"name": "admin/x"}, files=multipart(lora_files(1)))
        assert refusal(answer) == (403, "insufficient_scope")
        assert refusal(reader.post("keys/", json={"name": "x", "scopes": ["read"]})) == (403, "insufficient_scope")
        assert api.delete(f"keys/{made.json()['id']}/").status_code == 204
        assert refusal(reader.get("adapters/")) == (401, "invalid_api_key")
    # a key hands on no more than it holds
    assert refusal(api.post("keys/", json={"name": "m", "scopes": ["machine"]})) == (403, "insufficient_scope")

    other = site.python(
        "from django.contrib.auth.models import User\n"
        "from controlplane.accounts.services import create_team_for, issue_api_key\n"
        "from wire.registry import Scope\n"
        "user = User.objects.create_user('eve')\n"
        "print(json.dumps(issue_api_key(team=create_team_for(user=user), name='k', scopes=[Scope.ADMIN]).secret))"
    )
    api.post("adapters/", data={"name": "admin/secret"}, files=multipart(lora_files(42)))
    with site.api(other) as eve:
        for answer in (
            eve.get("adapters/admin/secret/"),
            eve.get("adapters/admin/secret/versions/1/"),
            eve.delete("adapters/admin/secret/", params={"confirm": "admin/secret"}),
            eve.put("adapters/admin/secret/aliases/live/", json={"version": 1}),
            eve.post("adapters/", data={"name": "admin/secret"}, files=multipart(lora_files(43))),
        ):
            assert refusal(answer) == (404, "not_found")
        assert eve.get("adapters/").json()["results"] == []
        assert eve.get("events/", params={"adapter": "admin/secret"}).json()["results"] == []


def test_artifacts_are_for_machines_and_scopes_hold(site: Site, api: httpx.Client) -> None:
    url = api.post("adapters/", data={"name": "admin/fetched"}, files=multipart(lora_files(77))).headers["location"]
    version = until(lambda: (body := api.get(url).json())["state"] == "ready" and body, timeout_s=120, what="ready")
    path = f"artifacts/{version['digest']}/"
    assert refusal(api.get(path)) == (403, "insufficient_scope")
    uploaded = next(file["sha256"] for file in version["files"] if file["role"] == "uploaded")
    with site.api(site.secrets["machine_key"]) as machine:
        whole = machine.get(path)
        assert hashlib.sha256(whole.content).hexdigest() == version["digest"]
        assert whole.headers["etag"] == f'"{version["digest"]}"'
        part = machine.get(path, headers={"Range": "bytes=10-19"})
        assert (part.status_code, part.content) == (206, whole.content[10:20])
        assert part.headers["content-range"] == f"bytes 10-19/{len(whole.content)}"
        assert machine.get(path, headers={"Range": "bytes=-5"}).content == whole.content[-5:]
        assert machine.get(path, headers={"Range": f"bytes={len(whole.content)}-"}).status_code == 416
        assert machine.get(path, headers={"If-None-Match": whole.headers["etag"]}).status_code == 304
        assert refusal(machine.get(f"artifacts/{uploaded}/")) == (404, "not_found")
        assert refusal(machine.get("artifacts/../secret_key/"))[0] == 404
        assert machine.get("adapters/").status_code == 403
    pusher = api.post("keys/", json={"name": "pusher", "scopes": ["push"]}).json()["secret"]
    with site.api(pusher) as only_push:
        moved = only_push.put("adapters/admin/fetched/aliases/canary/", json={"version": 1})
        assert (moved.status_code, moved.json()["aliases"]["canary"]) == (200, {"1": 100})
        assert refusal(only_push.get("adapters/admin/fetched/")) == (403, "insufficient_scope")


def test_addresses_that_do_not_exist(site: Site) -> None:
    answer = httpx.get(f"{site.url}/api/v1/nothing/", headers={"x-request-id": "given-id"})
    assert refusal(answer) == (404, "not_found")
    assert answer.headers["x-request-id"] == "given-id"
    assert httpx.get(f"{site.url}/healthz").json() == {"status": "ok"}
    assert httpx.get(f"{site.url}/readyz").json()["status"] == "ready"
    assert httpx.get(f"{site.url}/api/schema/").status_code == 200
    assert "swagger" in httpx.get(f"{site.url}/api/docs/").text
