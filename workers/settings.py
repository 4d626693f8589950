"""Settings of one worker process, from the environment."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

_SIMULATED = re.compile(r"simulated:[A-Za-z0-9._-]{1,64}")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


class WorkerSettings(BaseSettings):
    """``SHOAL_…`` variables; the worker holds no secret. All errors are reported together."""

    model_config = SettingsConfigDict(env_prefix="SHOAL_", extra="ignore")

    home: Path = Path(".shoal")
    socket: Path | None = None
    device: str = "cpu"
    worker_id: str = ""
    slots: int = Field(default=128, ge=1, le=4096)
    max_rank: int = Field(default=64, ge=1, le=512)
    torch_threads: int = Field(default_factory=_cores, ge=1)
    adapter_bytes: int = Field(default=2 * 1024**3, ge=1)
    """Bound of all slots of one model."""
    host_adapter_bytes: int = Field(default=1024**3, ge=0)
    """Bound of the second tier: adapters that fell out of their slots, kept in host memory."""
    model_bytes: int | None = Field(default=None, ge=1)
    """Bound of all loaded base models; unset: 60 % of the device's memory."""
    generation_bytes: int | None = Field(default=None, ge=1)
    """Bound of the keys and values of one model's texts in the making and ended ones; unset: 15 % of the device's
    memory."""
    generation_texts: int = Field(default=64, ge=1, le=1024)
    """Texts that one model makes at the same time; further ones wait."""
    generation_step_ms: float = Field(default=200.0, gt=0)
    """A long prompt is computed in parts of about this time, between which the texts in the making go on."""
    residency_half_life_s: float = Field(default=120.0, gt=0)
    """After this time a use of a model or adapter counts half as much when something has to leave; very short is plain
    least recently used."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """What models compute in; ``auto`` measures for each whether half precision is faster and close enough."""
    batch_tokens: int = Field(default=16_384, ge=1)
    batch_ms: float = Field(default=250.0, gt=0)
    """A batch is filled up to what the learned cost model expects to run in this time."""

    # a simulated device: what a batch takes is fixed + token · tokens + adapter · adapters
    simulated_fixed_ms: float = Field(default=5.0, ge=0)
    simulated_token_us: float = Field(default=50.0, ge=0)
    simulated_adapter_us: float = Field(default=100.0, ge=0)
    simulated_load_ms: float = Field(default=2.0, ge=0)
    """What putting an adapter into a slot of a simulated device takes."""
    simulated_model_load_ms: float = Field(default=500.0, ge=0)
    simulated_memory_bytes: int = Field(default=8 * 1024**3, ge=1)

    @field_validator("device")
    @classmethod
    def _known_device(cls, value: str) -> str:
        if value != "cpu" and not value.startswith("cuda") and not _SIMULATED.fullmatch(value):
            raise ValueError(f"{value!r} is not cpu, cuda, cuda:<index> or simulated:<name>")
        return value

    @property
    def is_simulated(self) -> bool:
        """Whether there is no device but arithmetic."""
        return self.device.startswith("simulated:")

    @property
    def socket_path(self) -> Path:
        """The sidecar's Unix socket."""
        return self.socket if self.socket is not None else self.home / "sidecar.sock"

    @property
    def worker_name(self) -> str:
        """Stable across restarts: the given id, else the device."""
        return self.worker_id or self.device.replace(":", "-" if self.is_simulated else "")
