"""A Celery worker that dies in the middle of a validation."""

from __future__ import annotations

import signal

import pytest

from tests.integration.controlplane.adapters import lora_files, multipart
from tests.integration.controlplane.site import Site, until

pytestmark = pytest.mark.timeout(300)

CLAIMED = (
    "from loras.models import Version\n"
    "print(json.dumps(Version.objects.filter(adapter__name={name!r}, number=1, attempts={attempt},"
    " claimed_at__isnull=False).exists()))"
)
LONG_AGO = (
    "from datetime import timedelta\n"
    "from django.utils import timezone\n"
    "from loras.models import Version\n"
    "rows = Version.objects.filter(adapter__name={name!r}, claimed_at__isnull=False)\n"
    "print(rows.update(claimed_at=timezone.now() - timedelta(hours=1)))"
)


def kill_while_validating(site: Site, name: str, attempt: int) -> None:
    """SIGKILL the worker while it waits for the stopped probe; let its claim look an hour old."""
    assert site.probe is not None
    site.probe.send_signal(signal.SIGSTOP)
    try:
        until(lambda: site.python(CLAIMED.format(name=name, attempt=attempt)), timeout_s=90, what=f"attempt {attempt}")
        site.kill_celery(signal.SIGKILL)
    finally:
        site.probe.send_signal(signal.SIGCONT)
    assert site.python(LONG_AGO.format(name=name)) == 1
    site.start_celery()


def test_killed_once_is_finished_and_killed_twice_is_rejected(site: Site) -> None:
    with site.api() as api:
        assert site.probe is not None
        site.probe.send_signal(signal.SIGSTOP)
        once = api.post("adapters/", data={"name": "admin/once"}, files=multipart(lora_files(501))).headers["location"]
        kill_while_validating(site, "once", 1)
        done = until(lambda: (body := api.get(once).json())["state"] == "ready" and body, timeout_s=90, what="ready")
        assert done["aliases"] == ["live"]

        site.probe.send_signal(signal.SIGSTOP)
        twice = api.post("adapters/", data={"name": "admin/twice"}, files=multipart(lora_files(502))).headers[
            "location"
        ]
        kill_while_validating(site, "twice", 1)
        kill_while_validating(site, "twice", 2)
        dead = until(lambda: (body := api.get(twice).json())["state"] == "rejected" and body, timeout_s=90, what="end")
        assert [row["code"] for row in dead["report"]["rows"]] == ["VALIDATION_CRASHED"]
        assert "2 times" in dead["report"]["rows"][0]["found"]


def test_redis_emptied_loses_nothing(site: Site) -> None:
    import redis

    with site.api() as api:
        site.kill_celery(signal.SIGKILL)
        url = api.post("adapters/", data={"name": "admin/flushed"}, files=multipart(lora_files(503))).headers[
            "location"
        ]
        with redis.Redis.from_url(site.environment["REDIS_URL"]) as client:
            client.flushall()
        site.python(
            "from datetime import timedelta\n"
            "from django.utils import timezone\n"
            "from loras.models import Version\n"
            "rows = Version.objects.filter(adapter__name='flushed')\n"
            "print(rows.update(dispatched_at=timezone.now() - timedelta(minutes=5)))"
        )
        site.start_celery()
        until(lambda: api.get(url).json()["state"] == "ready", timeout_s=90, what="ready")
