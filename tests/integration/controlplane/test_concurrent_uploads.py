"""Many uploads of one name at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.controlplane.adapters import lora_files, multipart
from tests.integration.controlplane.site import Site

pytestmark = pytest.mark.timeout(300)


def test_twenty_uploads_at_once_get_twenty_numbers(site: Site) -> None:
    def one(seed: int) -> int:
        # cut short, so that each verdict is quick; numbers are given out before it
        files = {name: data[:-9] for name, data in lora_files(100 + seed, rank=1).items()}
        with site.api() as api:
            received = api.post("adapters/", data={"name": "admin/crowd"}, files=multipart(files))
            assert received.status_code == 201, received.text
            return int(received.json()["number"])

    with ThreadPoolExecutor(20) as threads:
        numbers = list(threads.map(one, range(20)))
    assert sorted(numbers) == list(range(1, 21))


def test_the_same_bytes_at_once_are_one_version(site: Site) -> None:
    files = multipart(lora_files(300, rank=1))

    def one(_: int) -> tuple[int, int]:
        with site.api() as api:
            received = api.post("adapters/", data={"name": "admin/twins"}, files=files)
            return received.status_code, int(received.json()["number"])

    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(one, range(6)))
    assert sorted(answers) == [(200, 1)] * 5 + [(201, 1)]
