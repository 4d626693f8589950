"""Environment of every child, composed here and nowhere else."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from controlplane.stack.devices import Device
from controlplane.stack.home import Endpoints, Home

PROJECT_DIR = Path(__file__).resolve().parent.parent.parent
# math libraries start one thread per core in each process; a dozen processes would then starve each other
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True, slots=True)
class Sockets:
    """Unix sockets of this machine."""

    sidecar: Path
    probe: Path


@dataclass(frozen=True, slots=True)
class Environments:
    """What each kind of child finds in its environment; what the person has set wins over our defaults."""

    home: Home
    endpoints: Endpoints
    sockets: Sockets
    given: Mapping[str, str]

    @property
    def machine(self) -> str:
        """Name of this machine on NATS."""
        return self.given.get("SHOAL_MACHINE") or socket.gethostname()

    def server(self) -> dict[str, str]:
        """For nats-server and Valkey, which need nothing of ours."""
        return {key: self.given[key] for key in ("PATH", "HOME", "TZ", "LANG") if key in self.given}

    def control_plane(self) -> dict[str, str]:
        """For web, Celery, the telemetry bridge and management commands."""
        return self._base() | _ONE_THREAD | {"DJANGO_SETTINGS_MODULE": "controlplane.settings"}

    def gateway(self) -> dict[str, str]:
        """For the gateway: on loopback, whatever else is set."""
        return self._base() | _ONE_THREAD | {"SHOAL_GATEWAY_HOST": "127.0.0.1"}

    def sidecar(self) -> dict[str, str]:
        """For the sidecar; the machine key is read from the home when the child starts."""
        key_is_given = "SHOAL_MACHINE_KEY" in self.given or "SHOAL_MACHINE_KEY_FILE" in self.given
        key = {} if key_is_given else {"SHOAL_MACHINE_KEY_FILE": str(self.home.machine_key_path)}
        # artifacts are fetched over loopback, also when the public address is a proxy elsewhere
        return self._base() | _ONE_THREAD | key | {"SHOAL_WEB_URL": self.endpoints.web}

    def probe(self) -> dict[str, str]:
        """For the probe, which loads models and runs beside the worker."""
        return self._base() | _ONE_THREAD | {"CUDA_VISIBLE_DEVICES": ""}

    def worker(self, device: Device) -> dict[str, str]:
        """For one worker; its math threads are its own setting (``SHOAL_TORCH_THREADS``)."""
        ours = {"SHOAL_WORKER_ID": device.worker, "SHOAL_DEVICE": "cpu"}
        if device.cuda_uuid is not None:
            ours |= {"SHOAL_DEVICE": "cuda", "CUDA_VISIBLE_DEVICES": device.cuda_uuid}
        if device.simulated:
            ours |= {"SHOAL_DEVICE": f"simulated:{device.worker}"}
        return self._base() | ours

    def _base(self) -> dict[str, str]:
        given = {key: value for key, value in self.given.items() if not key.startswith("SHOAL_STACK_")}
        defaults = {
            # no surprise downloads: the default models come as Python packages
            "HF_HUB_OFFLINE": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "PYTHONUNBUFFERED": "1",
            "SHOAL_STORAGE_URL": f"file://{self.home.root / 'artifacts'}",
            "SHOAL_WEB_URL": self.endpoints.web,
            "SHOAL_GATEWAY_URL": self.endpoints.gateway,
            "SHOAL_MACHINE": self.machine,
            # within the grace that the supervisor gives each part
            "SHOAL_SHUTDOWN_GRACE_S": "8",
            "SHOAL_DRAIN_S": "8",
        }
        settled = {
            "SHOAL_HOME": str(self.home.root),
            "NATS_URL": self.endpoints.nats,
            "REDIS_URL": self.endpoints.redis,
            "SHOAL_WEB_PORT": self.endpoints.web.rpartition(":")[2],
            "SHOAL_GATEWAY_PORT": self.endpoints.gateway.rpartition(":")[2],
            "SHOAL_SOCKET": str(self.sockets.sidecar),
            "SHOAL_PROBE_SOCKET": str(self.sockets.probe),
        }
        return defaults | {key: value for key, value in given.items() if value} | settled


def given_environment() -> dict[str, str]:
    """The environment of the person who starts the stack, with this project first on the import path."""
    paths = [str(PROJECT_DIR), *filter(None, [os.environ.get("PYTHONPATH")])]
    return dict(os.environ) | {"PYTHONPATH": os.pathsep.join(paths)}
