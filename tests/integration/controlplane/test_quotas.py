"""Quotas of a team: said before the bytes travel, by every way of uploading, with what to delete."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.integration.controlplane.adapters import lora_files, multipart
from tests.integration.controlplane.site import Site
from tests.integration.controlplane.tus_client import begin, patch

pytestmark = pytest.mark.timeout(300)

MADE = (
    "from controlplane.accounts.models import Team, TeamQuota\n"
    "from controlplane.accounts.services import issue_api_key\n"
    "from wire.registry import Scope\n"
    "team, _ = Team.objects.get_or_create(name={team!r})\n"
    "TeamQuota.objects.update_or_create(team=team, defaults={limits!r})\n"
    "print(json.dumps(issue_api_key(team=team, name='k', scopes=[Scope.PUSH, Scope.READ]).secret))"
)


@dataclasses.dataclass
class Small:
    """A team with small limits."""

    site: Site
    api: httpx.Client
    team: str

    def limit(self, **limits: int) -> None:
        self.site.python(MADE.format(team=self.team, limits=limits))


@pytest.fixture
def small(site: Site, request: pytest.FixtureRequest) -> Iterator[Small]:
    team = "quota-" + request.node.originalname.replace("_", "-")[5:45]
    with site.api(site.python(MADE.format(team=team, limits={}))) as client:
        yield Small(site, client, team)


def refusal(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 403, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert error["code"] == "quota_exceeded"
    return error


def test_bytes(small: Small) -> None:
    files = lora_files(3001)
    assert small.api.post("adapters/", data={"name": f"{small.team}/a"}, files=multipart(files)).status_code == 201
    kept = sum(map(len, files.values()))
    small.limit(stored_bytes=2 * kept + 5_000_000, upload_bytes=4_000_000)
    half = begin(small.api, 3_000_000, name=f"{small.team}/a", filename="half.bin")
    assert half.status_code == 201

    error = refusal(begin(small.api, 2_500_000, name=f"{small.team}/a", filename="more.bin"))
    assert error["param"] == "stored_bytes"
    # once it is validated, what workers load of it counts too
    assert kept + 3_000_000 <= error["quota"]["used"] < 3 * kept + 3_000_000
    assert "this upload of 2.50 MB does not fit" in error["message"]
    assert f"{small.team}/a (" in error["hint"]
    assert "1 unfinished uploads" in error["hint"]
    assert refusal(begin(small.api, 10, name=f"{small.team}/a", package_bytes="2500000"))["param"] == "stored_bytes"
    too_large = refusal(begin(small.api, 4_000_001, name=f"{small.team}/a"))
    assert too_large["param"] == "upload_bytes"
    assert "4.00 MB" in too_large["message"]

    form = {"file": ("a.safetensors", b"x" * 6_500_000)}
    for data, path in (({"name": f"{small.team}/a"}, "adapters/"), ({}, f"adapters/{small.team}/a/versions/")):
        assert refusal(small.api.post(path, data=data, files=form))["param"] == "upload_bytes"
    # the bytes are there already, so that they take no room
    small.limit(stored_bytes=1, upload_bytes=4_000_000)
    assert small.api.post("adapters/", data={"name": f"{small.team}/a"}, files=multipart(files)).status_code == 200
    small.limit(stored_bytes=kept + 3_000_000)
    exact = {"file": ("b.safetensors", b"y" * 200_000)}
    assert (
        refusal(small.api.post("adapters/", data={"name": f"{small.team}/a"}, files=exact))["param"] == "stored_bytes"
    )
    assert small.api.delete(half.headers["location"], headers={"Tus-Resumable": "1.0.0"}).status_code == 204
    assert small.api.post("adapters/", data={"name": f"{small.team}/a"}, files=exact).status_code == 201


def test_counts(small: Small) -> None:
    small.limit(adapters=2, versions_per_adapter=2, uploads_in_progress=3)

    def push(name: str, seed: int) -> httpx.Response:
        files = multipart(lora_files(seed, rank=1))
        return small.api.post("adapters/", data={"name": f"{small.team}/{name}"}, files=files)

    assert push("a", 3002).status_code == 201
    assert push("b", 3003).status_code == 201
    error = refusal(push("c", 3004))
    assert (error["param"], error["quota"]) == ("adapters", {"name": "adapters", "limit": 2, "used": 2})
    assert f"{small.team}/a" in error["hint"]
    assert refusal(begin(small.api, 10, name=f"{small.team}/c"))["param"] == "adapters"
    assert push("a", 3005).status_code == 201
    assert refusal(push("a", 3006))["param"] == "versions_per_adapter"

    urls = [begin(small.api, 10, name=f"{small.team}/b").headers["location"] for _ in range(3)]
    error = refusal(begin(small.api, 10, name=f"{small.team}/b"))
    assert error["param"] == "uploads_in_progress"
    assert urls[0].rstrip("/").rpartition("/")[2] in error["hint"]
    assert patch(small.api, urls[0], 0, b"0123456789").status_code == 204


def test_the_last_place_is_given_once(small: Small) -> None:
    small.limit(uploads_in_progress=1, adapters=1)

    def one(number: int) -> int:
        with small.site.api(small.api.headers["authorization"].partition(" ")[2]) as mine:
            return begin(mine, 10, name=f"{small.team}/{number}").status_code

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(one, range(8))) == [201] + [403] * 7
