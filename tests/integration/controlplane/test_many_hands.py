"""Ten people move one alias at the same time, each from what they saw."""

from __future__ import annotations

import itertools
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.controlplane.site import Site

pytestmark = pytest.mark.timeout(300)

THREE_READY_VERSIONS = """
from controlplane.accounts.models import Team
from fleet.models import BaseModel
from loras.models import Adapter, Artifact, Version, VersionFile
from loras.services import move_alias
adapter = Adapter.objects.create(
    team=Team.objects.get(name="admin"), name="contested", last_number=3, base_model=BaseModel.objects.first()
)
for number in (1, 2, 3):
    digest = str(number) * 64
    version = Version.objects.create(adapter=adapter, number=number, state="ready", digest=digest, mode="packed")
    artifact = Artifact.objects.create(sha256=digest, size_bytes=1)
    VersionFile.objects.create(version=version, artifact=artifact, role="canonical", path="adapter.safetensors")
move_alias(adapter=adapter, alias="live", split={1: 100})
print("null")
"""
HISTORY = """
from loras.models import AliasMove
moves = AliasMove.objects.filter(adapter__name="contested", alias="live").order_by("id")
print(json.dumps([move.split for move in moves]))
"""


def test_each_move_has_one_winner_and_the_history_is_one_chain(site: Site) -> None:
    site.python(THREE_READY_VERSIONS)

    def person(seed: int) -> list[tuple[str, str]]:
        chance, won = random.Random(seed), []
        with site.api() as api:
            for _ in range(6):
                (before,) = api.get("adapters/admin/contested/").json()["aliases"]["live"]
                after = chance.choice([number for number in "123" if number != before])
                body = {"version": int(after), "expect": {before: 100}}
                answer = api.put("adapters/admin/contested/aliases/live/", json=body)
                assert answer.status_code in {200, 409}, answer.text
                if answer.status_code == 200:
                    won.append((before, after))
                else:
                    assert answer.json()["error"]["code"] == "stale"
        return won

    with ThreadPoolExecutor(10) as people:
        won = [move for moves in people.map(person, range(10)) for move in moves]
    chain = [number for split in site.python(HISTORY) for number in split]
    assert won
    assert sorted(won) == sorted(itertools.pairwise(chain))
    with site.api() as api:
        assert api.get("adapters/admin/contested/").json()["aliases"] == {"live": {chain[-1]: 100}}
