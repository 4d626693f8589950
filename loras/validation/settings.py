"""Settings of validations, read from the environment of the process that runs them."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from loras.validation.limits import GIB, SandboxLimits


class ValidationSettings(BaseSettings):
    """``SHOAL_PROBE_SOCKET`` (unset: each probe starts a child), ``SHOAL_VALIDATION_TIMEOUT_S``,
    ``SHOAL_VALIDATION_MEMORY_BYTES``, ``SHOAL_MAX_RANK``."""

    model_config = SettingsConfigDict(env_prefix="SHOAL_", env_ignore_empty=True, extra="ignore")

    probe_socket: Path | None = None
    validation_timeout_s: float = Field(default=60.0, gt=0)
    validation_memory_bytes: int = Field(default=4 * GIB, ge=GIB)
    max_rank: int = Field(default=64, ge=1)

    def limits(self) -> SandboxLimits:
        """The limits that these settings ask for."""
        return SandboxLimits(
            timeout_s=self.validation_timeout_s,
            cpu_s=max(1, round(self.validation_timeout_s)),
            memory_bytes=self.validation_memory_bytes,
        )
