"""Where the warm probe listens, read from the environment of the process that runs validations."""

from __future__ import annotations

from pathlib import Path

from pydantic_settings import BaseSettings, SettingsConfigDict


class ProbeSettings(BaseSettings):
    """``SHOAL_PROBE_SOCKET``; unset: each probe starts a child."""

    model_config = SettingsConfigDict(env_prefix="SHOAL_", env_ignore_empty=True, extra="ignore")

    probe_socket: Path | None = None
