"""The protocol of resumable uploads (tus 1.0): offsets, checksums, locks, known content, the completion."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.integration.controlplane.adapters import lora_files
from tests.integration.controlplane.site import Site
from tests.integration.controlplane.tus_client import (
    CHUNK,
    begin,
    checksum,
    cut_patch,
    end_of_cut,
    metadata,
    offset_of,
    patch,
)

pytestmark = pytest.mark.timeout(300)

TUS = {"Tus-Resumable": "1.0.0"}


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def send(api: httpx.Client, name: str, files: dict[str, bytes], **pairs: str) -> list[str]:
    """Ids of finished uploads of ``files``."""
    ids = []
    for path, data in files.items():
        begun = begin(api, len(data), name=name, filename=path, sha256=hashlib.sha256(data).hexdigest(), **pairs)
        assert begun.status_code == 201, begun.text
        if int(begun.headers["upload-offset"]) < len(data):
            sent = patch(api, begun.headers["location"], 0, data, Upload_Checksum=checksum(data))
            assert sent.status_code == 204, sent.text
        ids.append(begun.json()["id"])
    return ids


def complete(api: httpx.Client, ids: list[str], **body: object) -> httpx.Response:
    return api.post(f"uploads/{ids[0]}/complete/", json={"uploads": ids[1:], **body})


def test_what_the_server_speaks_is_told_to_anybody(site: Site) -> None:
    answer = httpx.options(f"{site.url}/api/v1/uploads/")
    assert answer.status_code == 204
    assert answer.headers["tus-version"] == "1.0.0"
    assert set(answer.headers["tus-extension"].split(",")) == {
        "creation", "creation-with-upload", "termination", "checksum", "expiration",
    }  # fmt: skip
    assert answer.headers["tus-max-size"] == str(8 * 1024**2)
    assert answer.headers["tus-checksum-algorithm"] == "sha256,sha1"


def test_chunks_become_a_version_and_the_same_bytes_need_no_sending(api: httpx.Client) -> None:
    files = lora_files(2001)
    weights = files["adapter_model.safetensors"]
    begun = begin(api, len(weights), name="admin/chunks", filename="adapter_model.safetensors", message="in parts")
    assert begun.status_code == 201, begun.text
    url = begun.headers["location"]
    assert begun.headers["upload-offset"] == "0"
    assert "upload-expires" in begun.headers
    half = len(weights) // 2
    first = patch(api, url, 0, weights[:half])
    assert (first.status_code, first.headers["upload-offset"]) == (204, str(half))

    # sent twice, out of order, with the wrong checksum, too long: refused with the offset, nothing kept
    again = patch(api, url, 0, weights[:half])
    assert code(again) == (409, "offset_mismatch")
    assert again.headers["upload-offset"] == str(half)
    assert code(patch(api, url, half + 1, weights[half + 1 :])) == (409, "offset_mismatch")
    broken = patch(api, url, half, weights[half:], Upload_Checksum=checksum(b"other"))
    assert code(broken) == (460, "checksum_mismatch")
    assert code(patch(api, url, half, weights[half:] + b"x")) == (413, "payload_too_large")
    assert offset_of(api, url) == half
    early = api.post(f"{url}complete/", json={})
    assert code(early) == (409, "offset_mismatch")
    assert (early.json()["error"]["offset"], early.json()["error"]["upload"]) == (half, begun.json()["id"])

    rest = weights[half:]
    assert patch(api, url, half, rest, Upload_Checksum=checksum(rest, "sha1")).status_code == 204
    config = files["adapter_config.json"]
    headers = {
        **TUS, "Upload-Length": str(len(config)), "Content-Type": CHUNK, "Upload-Checksum": checksum(config),
        "Upload-Metadata": metadata(name="admin/chunks", filename="adapter_config.json"),
    }  # fmt: skip
    at_once = api.post("uploads/", headers=headers, content=config)
    assert (at_once.status_code, at_once.headers["upload-offset"]) == (201, str(len(config)))
    ids = [begun.json()["id"], at_once.json()["id"]]
    assert {row["id"] for row in api.get("uploads/").json()["results"]} >= set(ids)

    made = complete(api, ids)
    assert (made.status_code, made.json()["number"], made.json()["message"]) == (201, 1, "in parts")
    stored = {file["path"]: file["sha256"] for file in made.json()["files"]}
    assert stored == {path: hashlib.sha256(data).hexdigest() for path, data in files.items()}
    # the answer may have been lost: asked again, it is the same version
    repeated = complete(api, ids)
    assert (repeated.status_code, repeated.json()["number"]) == (200, 1)
    assert not set(ids) & {row["id"] for row in api.get("uploads/").json()["results"]}

    known = begin(
        api, len(weights), name="admin/chunks", filename="adapter_model.safetensors",
        sha256=stored["adapter_model.safetensors"],
    )  # fmt: skip
    assert known.headers["upload-offset"] == str(len(weights))
    assert [(row["name"], row["number"]) for row in known.json()["known"]] == [("admin/chunks", 1)]
    second = complete(api, send(api, "admin/chunks", files))
    assert (second.status_code, second.json()["number"]) == (200, 1)
    asked = api.get("uploads/known/", params={"sha256": stored["adapter_config.json"]}).json()
    # other adapters of the team may hold the same configuration
    assert [row["number"] for row in asked["versions"] if row["name"] == "admin/chunks"] == [1]
    announced = [
        {"path": path, "sha256": stored[path], "size_bytes": len(data)} for path, data in files.items()
    ]  # fmt: skip
    whole = api.post("uploads/known/", json={"name": "admin/chunks", "files": announced}).json()
    assert [(row["name"], row["number"]) for row in whole["versions"]] == [("admin/chunks", 1)]
    assert set(whole["stored"]) == set(stored.values())
    part = api.post("uploads/known/", json={"name": "admin/chunks", "files": announced[:1]}).json()
    assert (part["versions"], len(part["stored"])) == ([], 1)


def test_a_cut_chunk_stays_as_far_as_it_came_and_a_checked_one_whole_or_not(site: Site, api: httpx.Client) -> None:
    data = bytes(range(256)) * 4096
    url = begin(api, len(data), name="admin/cuts", filename="a.safetensors").headers["location"]
    cut_patch(api, site.home, url, 0, data, 700_000)
    # the server notices the cut a moment later; until then another writer is refused
    at = end_of_cut(api, site.home, url)
    assert 0 < at <= 700_000
    cut_patch(api, site.home, url, at, data[at:], 200_000, Upload_Checksum=checksum(data[at:]))
    assert end_of_cut(api, site.home, url) == at
    assert patch(api, url, at, data[at:], Upload_Checksum=checksum(data[at:])).status_code == 204
    state = api.get(url).json()
    assert (state["offset"], state["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    assert api.delete(url, headers=TUS).status_code == 204
    assert api.head(url, headers=TUS).status_code == 404


def test_of_two_writers_at_once_one_wins(site: Site, api: httpx.Client) -> None:
    data = b"z" * 500_000
    url = begin(api, len(data), name="admin/race", filename="a.safetensors").headers["location"]

    def one(_: int) -> int:
        with site.api() as mine:
            return patch(mine, url, 0, data).status_code

    with ThreadPoolExecutor(6) as threads:
        answers = sorted(threads.map(one, range(6)))
    assert answers[0] == 204
    assert set(answers[1:]) <= {409, 423}
    assert offset_of(api, url) == len(data)


def test_twenty_uploads_to_one_name_at_once_get_twenty_numbers(site: Site) -> None:
    def one(number: int) -> tuple[int, int]:
        data = f"not an adapter {number}".encode()
        with site.api() as mine:
            made = complete(mine, send(mine, "admin/tus-crowd", {"a.txt": data}))
            assert made.status_code == 201, made.text
            return made.status_code, int(made.json()["number"])

    with ThreadPoolExecutor(20) as threads:
        assert sorted(threads.map(one, range(20))) == [(201, number) for number in range(1, 21)]


def test_an_evaluation_comes_with_the_files_and_is_no_part_of_them(api: httpx.Client) -> None:
    rows = b'{"query": "reset", "positive": "hold the button"}\n' * 3
    ids = send(api, "admin/measured", lora_files(2005, rank=1))
    ids += send(api, "admin/measured", {"rows.jsonl": rows}, role="evaluation", promote="if_better")
    bad = send(api, "admin/measured", {"bad.jsonl": b"{no json\n"}, role="evaluation")
    refused = complete(api, [*ids[:2], *bad], promote="if_better")
    assert refused.status_code == 400, refused.text
    assert "line 1" in refused.json()["error"]["message"].lower()
    made = complete(api, ids)
    assert made.status_code == 201, made.text
    assert {file["path"] for file in made.json()["files"]} == {"adapter_config.json", "adapter_model.safetensors"}
    attached = api.get(f"adapters/admin/measured/versions/{made.json()['number']}/evaluations/").json()["results"]
    assert [(row["rows"], row["promote_if_better"]) for row in attached] == [(3, True)]


def test_a_file_that_is_not_what_was_announced_is_emptied(api: httpx.Client) -> None:
    begun = begin(api, 5, name="admin/changed", filename="a.bin", sha256="0" * 64)
    url = begun.headers["location"]
    assert patch(api, url, 0, b"12345").status_code == 204
    wrong = complete(api, [begun.json()["id"]])
    assert code(wrong) == (460, "checksum_mismatch")
    assert hashlib.sha256(b"12345").hexdigest() in wrong.json()["error"]["message"]
    assert offset_of(api, url) == 0


BAD_BEGINNINGS = [
    ({"Upload-Length": "x"}, 400, "Upload-Length"),
    ({"Upload-Length": "-1"}, 400, "Upload-Length"),
    ({}, 400, "Upload-Length"),
    ({"Upload-Length": "9" * 30}, 400, "Upload-Length"),
    ({"Upload-Length": str(2**40)}, 413, "Upload-Length"),
    ({"Upload-Length": "5", "Upload-Metadata": "name !!!"}, 400, "Upload-Metadata"),
    ({"Upload-Length": "5", "Upload-Metadata": "a YQ==,a YQ=="}, 400, "Upload-Metadata"),
    ({"Upload-Length": "5", "Upload-Metadata": metadata(name="admin/UPPER")}, 400, "name"),
    ({"Upload-Length": "5", "Upload-Metadata": metadata(name="rivals/x")}, 404, None),
    ({"Upload-Length": "5", "Upload-Metadata": metadata(sha256="abc")}, 400, "sha256"),
    ({"Upload-Length": "5", "Upload-Metadata": metadata(base_model="no/such")}, 400, "base_model"),
    ({"Upload-Length": "5", "Upload-Checksum": "md5 YQ=="}, 400, "Upload-Checksum"),
    ({"Upload-Length": "5", "Tus-Resumable": "0.2.2"}, 412, "Tus-Resumable"),
    ({"Upload-Length": "5", "Upload-Defer-Length": "1"}, 400, "Upload-Defer-Length"),
]  # fmt: skip


@pytest.mark.parametrize(("headers", "status", "param"), BAD_BEGINNINGS)
def test_a_bad_beginning_is_refused_before_bytes_travel(
    api: httpx.Client, headers: dict[str, str], status: int, param: str | None
) -> None:
    before = len(api.get("uploads/").json()["results"])
    answer = api.post("uploads/", headers={**TUS, **headers})
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param), answer.text
    assert len(api.get("uploads/").json()["results"]) == before


@pytest.fixture
def stranger(site: Site) -> Iterator[httpx.Client]:
    """A key of another team."""
    made = site.python(
        "from controlplane.accounts.models import Team\n"
        "from controlplane.accounts.services import issue_api_key\n"
        "from wire.registry import Scope\n"
        "team, _ = Team.objects.get_or_create(name='elsewhere')\n"
        "print(json.dumps(issue_api_key(team=team, name='k', scopes=[Scope.PUSH, Scope.READ]).secret))"
    )
    with site.api(made) as client:
        yield client


def test_another_teams_uploads_and_content_do_not_exist(api: httpx.Client, stranger: httpx.Client) -> None:
    files = lora_files(2002, rank=1)
    ids = send(api, "admin/private", files)
    url = f"uploads/{ids[0]}/"
    assert stranger.head(url, headers=TUS).status_code == 404
    assert code(stranger.get(url)) == (404, "not_found")
    assert patch(stranger, url, 0, b"x").status_code == 404
    assert stranger.delete(url, headers=TUS).status_code == 404
    assert stranger.post(f"{url}complete/", json={"name": "elsewhere/x"}).status_code == 404
    assert complete(api, ids).status_code == 201
    sha256 = hashlib.sha256(files["adapter_model.safetensors"]).hexdigest()
    assert stranger.get("uploads/known/", params={"sha256": sha256}).json() == {"versions": [], "stored": []}
    size = len(files["adapter_model.safetensors"])
    fresh = begin(stranger, size, name="elsewhere/x", filename="adapter_model.safetensors", sha256=sha256)
    assert (fresh.status_code, fresh.headers["upload-offset"], fresh.json()["known"]) == (201, "0", [])


def test_unfinished_uploads_are_reaped(site: Site, api: httpx.Client) -> None:
    urls = []
    for number in range(20):
        url = begin(api, 1000, name="admin/never", filename=f"{number}.bin").headers["location"]
        assert patch(api, url, 0, b"y" * 400).status_code == 204
        urls.append(url)
    used = {row["team"]: row["used"] for row in api.get("quotas/").json()}["admin"]
    assert used["uploads_in_progress"] >= 20
    assert used["reserved_bytes"] >= 20_000
    parts = site.home / "uploads"
    assert len(list(parts.glob("*.part"))) >= 20
    reaped = site.python(
        "from datetime import timedelta\n"
        "from django.utils import timezone\n"
        "from loras.models import Upload\n"
        "from loras.uploads.sweep import sweep_uploads\n"
        "Upload.objects.filter(adapter='never').update(touched_at=timezone.now() - timedelta(hours=25))\n"
        "print(sweep_uploads())"
    )
    assert reaped == 20
    gone = api.head(urls[0], headers=TUS)
    assert gone.status_code == 410
    assert code(patch(api, urls[1], 400, b"y")) == (410, "upload_expired")
    assert not {url.rstrip("/").rpartition("/")[2] for url in urls} & {path.stem for path in parts.glob("*.part")}
    events = api.get("events/", params={"adapter": "admin/never"}).json()["results"]
    assert "Upload of 19.bin given up at 400 bytes of 1.00 kB" in {row["message"] for row in events}
