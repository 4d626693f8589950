"""A whole site for live tests: NATS, Valkey, a migrated database, web and the telemetry bridge as processes."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import nats
import psutil
import websockets.asyncio.client as websockets
from websockets.typing import Origin

from tests.servers import ServerProcess, free_port, nats_server, valkey_server
from tests.unit.fleet.samples import telemetry
from wire.codec import encode
from wire.subjects import telemetry as telemetry_subject
from wire.telemetry import Telemetry

ROOT = Path(__file__).resolve().parents[3]
PASSWORD = "a long enough password"

SEED = f"""
import django, json
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
from django.contrib.auth.models import User
from controlplane.accounts.models import Membership, Team
from controlplane.accounts.services import issue_api_key
from loras.models import Adapter, Version
from wire.registry import Scope
user = User.objects.create_user("operator", password="{PASSWORD}", is_staff=True)
own, other = Team.objects.create(name="own"), Team.objects.create(name="other")
Membership.objects.create(team=own, user=user)
for team, digest in ((own, "a" * 64), (other, "b" * 64)):
    adapter = Adapter.objects.create(team=team, name="titles", last_number=3)
    Version.objects.create(adapter=adapter, number=3, state="ready", digest=digest)
print(json.dumps({{"key": issue_api_key(team=own, name="t", scopes=[Scope.READ], actor=user).secret}}))
"""


@dataclass
class Site:
    """Addresses and processes of one site."""

    env: dict[str, str]
    nats: ServerProcess
    valkey: ServerProcess
    web: ServerProcess
    bridge: subprocess.Popen[bytes]
    key: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.web.port}"

    @property
    def socket_url(self) -> str:
        return f"ws://127.0.0.1:{self.web.port}/ws/fleet/"

    def web_memory_bytes(self) -> int:
        """Resident set of the web process."""
        assert self.web.process is not None
        return int(psutil.Process(self.web.process.pid).memory_info().rss)

    def wait_ready(self, *, timeout_s: float = 60.0) -> None:
        """Return once web answers."""
        limit = time.monotonic() + timeout_s
        while time.monotonic() < limit:
            probe = http.client.HTTPConnection("127.0.0.1", self.web.port, timeout=5)
            with contextlib.suppress(OSError), contextlib.closing(probe) as connection:
                connection.request("GET", "/healthz")
                if connection.getresponse().status == 200:
                    return
            time.sleep(0.1)
        raise TimeoutError(f"web on port {self.web.port} is not healthy after {timeout_s} s")

    def connect(self, *, key: str | None = None, max_queue: int | None = 16) -> websockets.connect:
        """A socket to the fleet, signed in with ``key`` (the site's read key by default)."""
        return websockets.connect(
            self.socket_url,
            additional_headers={"Authorization": f"Bearer {key or self.key}"},
            origin=Origin(self.url),
            max_size=None,
            max_queue=max_queue,
            compression=None,
            open_timeout=30,
        )


@contextlib.contextmanager
def running_site(home: Path) -> Iterator[Site]:
    """A site below ``home``; everything is ended on the way out."""
    with nats_server(home) as queue, valkey_server(home / "valkey") as valkey:
        env = {
            **os.environ,
            "SHOAL_HOME": str(home / "shoal"),
            "NATS_URL": f"nats://127.0.0.1:{queue.port}",
            "REDIS_URL": f"redis://127.0.0.1:{valkey.port}/0",
            "DATABASE_URL": "",
            "DJANGO_SETTINGS_MODULE": "controlplane.settings",
            "OMP_NUM_THREADS": "1",
        }
        seeded = subprocess.run([sys.executable, "-c", SEED], cwd=ROOT, env=env, check=True, capture_output=True)
        port = free_port()
        web = _Child([sys.executable, "-m", "uvicorn", "controlplane.asgi:application", "--port", str(port)], port)
        web.env = env
        bridge = subprocess.Popen(
            [sys.executable, "manage.py", "telemetry_bridge"],
            cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        key = json.loads(seeded.stdout.splitlines()[-1])["key"]
        site = Site(env, queue, valkey, web, bridge, key)
        try:
            web.start()
            site.wait_ready()
            yield site
        finally:
            web.stop()
            bridge.terminate()
            bridge.wait(timeout=20)


class _Child(ServerProcess):
    """A server process with an environment of its own, started at the repository's root."""

    env: dict[str, str]

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.command, cwd=ROOT, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        limit = time.monotonic() + 60
        while time.monotonic() < limit:
            with (
                contextlib.suppress(OSError),
                contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=1)) as probe,
            ):
                probe.connect()
                return
            time.sleep(0.05)
        raise TimeoutError(f"web does not listen on port {self.port}")


class Feed:
    """Publishes one sample a second for each of its workers, until stopped."""

    def __init__(self, url: str, *, workers: tuple[str, ...] = ("cpu",)) -> None:
        self._url = url
        self.workers = list(workers)
        self.sent = 0

    def sample(self, worker: str) -> Telemetry:
        """The next sample; overridden by tests that need more in it."""
        return telemetry(worker=worker, at=time.time(), requests=self.sent, tokens=self.sent * 10, busy=0.5)

    async def run(self) -> None:
        """Publish until cancelled."""
        client = await nats.connect(self._url)
        try:
            while True:
                self.sent += 1
                for worker in self.workers:
                    await client.publish(telemetry_subject("box", worker), encode(self.sample(worker)))
                await client.flush()
                await asyncio.sleep(1)
        finally:
            await client.close()


@contextlib.asynccontextmanager
async def feeding(feed: Feed) -> AsyncIterator[Feed]:
    """``feed`` running in the background."""
    task = asyncio.create_task(feed.run())
    try:
        yield feed
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
