"""Settings of the sidecar, from the environment; every error is reported at once at boot."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import SettingsConfigDict

from fabric.settings import QueueEnvironment, with_file_values

SOCKET_PATH_BYTES = 107


def _home() -> Path:
    return Path(os.environ.get("SHOAL_HOME", ".shoal"))


class SidecarSettings(QueueEnvironment):
    """What the sidecar of one machine needs to know. The queue settings must equal the gateway's."""

    model_config = SettingsConfigDict(extra="ignore", env_ignore_empty=True, populate_by_name=True)

    nats_url: str = Field(default="nats://127.0.0.1:4222", validation_alias="NATS_URL")
    machine: str = Field(default_factory=socket.gethostname, validation_alias="SHOAL_MACHINE", min_length=1)
    pool: str = Field(default="default", validation_alias="SHOAL_POOL", min_length=1)
    socket: Path = Field(default_factory=lambda: _home() / "sidecar.sock", validation_alias="SHOAL_SOCKET")
    cache_dir: Path = Field(default_factory=lambda: _home() / "cache", validation_alias="SHOAL_CACHE_DIR")
    cache_bytes: int = Field(default=10 * 1024**3, validation_alias="SHOAL_CACHE_BYTES", gt=0)
    web_url: str = Field(default="http://127.0.0.1:8000", validation_alias="SHOAL_WEB_URL", pattern=r"^https?://")
    machine_key: SecretStr = Field(default=SecretStr(""), validation_alias="SHOAL_MACHINE_KEY")
    metrics_port: int = Field(default=0, validation_alias="SHOAL_SIDECAR_METRICS_PORT", ge=0, le=65535)

    watchdog_s: float = Field(default=20.0, validation_alias="SHOAL_WATCHDOG_S", gt=0)
    drain_s: float = Field(default=20.0, validation_alias="SHOAL_DRAIN_S", ge=0)
    orphan_s: float = Field(default=3.0, validation_alias="SHOAL_ORPHAN_S", gt=0)
    stall_s: float = Field(default=3.0, validation_alias="SHOAL_STALL_S", gt=0)
    pull_expires_s: float = Field(default=5.0, validation_alias="SHOAL_PULL_EXPIRES_S", ge=1)
    max_ask_jobs: int = Field(default=256, validation_alias="SHOAL_MAX_ASK_JOBS", gt=0)
    download_timeout_s: float = Field(default=15.0, validation_alias="SHOAL_DOWNLOAD_TIMEOUT_S", gt=0)
    failure_memory_s: float = Field(default=2.0, validation_alias="SHOAL_ARTIFACT_FAILURE_MEMORY_S", ge=0)

    @model_validator(mode="before")
    @classmethod
    def _read_files(cls, values: Any) -> Any:
        return with_file_values(values, cls.model_fields)

    @model_validator(mode="after")
    def _check_socket(self) -> Self:
        length = len(os.fsencode(self.socket))
        if length > SOCKET_PATH_BYTES:
            raise ValueError(
                f"SHOAL_SOCKET has {length} bytes, Unix sockets allow {SOCKET_PATH_BYTES}; choose a shorter path"
            )
        return self
