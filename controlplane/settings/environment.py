"""Typed settings of the control plane, read once from the environment; every error is reported at once."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured
from pydantic import Field, ValidationError, field_validator, model_validator

from controlplane.process_settings import ProcessSettings, describe_problems
from fabric.settings import QueueEnvironment

# beyond its time limit a validation takes this long: the shortest probe, the probe server's grace, copying and storing
SWEEP_MARGIN_S = 30.0


class Environment(ProcessSettings, QueueEnvironment):
    """Environment of web, Celery and the management commands. Sizes in bytes, times in seconds."""

    home: Path = Field(Path(".shoal"), validation_alias="SHOAL_HOME")
    debug: bool = Field(False, validation_alias="SHOAL_DEBUG")
    secret_key: str = Field("", validation_alias="SHOAL_SECRET_KEY")
    public_https: bool = Field(False, validation_alias="SHOAL_PUBLIC_HTTPS")
    hsts_seconds: int = Field(31_536_000, validation_alias="SHOAL_HSTS_SECONDS", ge=0)
    allowed_hosts: str = Field("localhost,127.0.0.1,[::1]", validation_alias="SHOAL_ALLOWED_HOSTS")
    trusted_origins: str = Field("", validation_alias="SHOAL_TRUSTED_ORIGINS")
    log_level: str = Field("INFO", validation_alias="SHOAL_LOG_LEVEL")
    database_url: str = Field("", validation_alias="DATABASE_URL")
    redis_url: str = Field("redis://127.0.0.1:6379/0", validation_alias="REDIS_URL")
    redis_prefix: str = Field("shoal", validation_alias="SHOAL_REDIS_PREFIX")
    nats_url: str = Field("nats://127.0.0.1:4222", validation_alias="NATS_URL")
    storage_url: str = Field("", validation_alias="SHOAL_STORAGE_URL")
    web_port: int = Field(8000, validation_alias="SHOAL_WEB_PORT", ge=0, le=65_535)
    gateway_port: int = Field(8080, validation_alias="SHOAL_GATEWAY_PORT", ge=0, le=65_535)
    web_url: str = Field("", validation_alias="SHOAL_WEB_URL")
    gateway_url: str = Field("", validation_alias="SHOAL_GATEWAY_URL")
    upload_max_bytes: int = Field(2 * 1024**3, validation_alias="SHOAL_UPLOAD_MAX_BYTES", gt=0)
    upload_max_files: int = Field(500, validation_alias="SHOAL_UPLOAD_MAX_FILES", gt=0)
    # what a team may keep; an administrator sets other limits for single teams
    quota_stored_bytes: int = Field(50 * 1024**3, validation_alias="SHOAL_QUOTA_STORED_BYTES", gt=0)
    quota_adapters: int = Field(2_000, validation_alias="SHOAL_QUOTA_ADAPTERS", gt=0)
    quota_versions: int = Field(500, validation_alias="SHOAL_QUOTA_VERSIONS", gt=0)
    quota_uploads: int = Field(200, validation_alias="SHOAL_QUOTA_UPLOADS", gt=0)
    upload_expires_s: float = Field(24 * 3600.0, validation_alias="SHOAL_UPLOAD_EXPIRES_S", gt=0)
    validation_timeout_s: float = Field(120.0, validation_alias="SHOAL_VALIDATION_TIMEOUT_S", gt=0)
    validation_memory_bytes: int = Field(4 * 1024**3, validation_alias="SHOAL_VALIDATION_MEMORY_BYTES", gt=0)
    # 0 stands for what the time limit asks for; read ``sweep_after_s``
    chosen_sweep_after_s: float = Field(0.0, validation_alias="SHOAL_SWEEP_AFTER_S", ge=0)
    max_rank: int = Field(64, validation_alias="SHOAL_MAX_RANK", gt=0)
    canary_least_requests: int = Field(20, validation_alias="SHOAL_CANARY_LEAST_REQUESTS", ge=1)
    canary_error_margin: float = Field(0.02, validation_alias="SHOAL_CANARY_ERROR_MARGIN", ge=0, lt=1)
    canary_latency_factor: float = Field(2.0, validation_alias="SHOAL_CANARY_LATENCY_FACTOR", ge=1)
    canary_latency_floor_ms: float = Field(50.0, validation_alias="SHOAL_CANARY_LATENCY_FLOOR_MS", ge=0)

    @field_validator("log_level")
    @classmethod
    def _known_level(cls, value: str) -> str:
        if value.upper() not in {"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"}:
            raise ValueError("use DEBUG, INFO, WARNING, ERROR or CRITICAL")
        return value.upper()

    @field_validator("storage_url")
    @classmethod
    def _known_storage(cls, value: str) -> str:
        if value and not value.startswith(("file://", "s3://")):
            raise ValueError("use file:///absolute/path or s3://bucket/prefix?endpoint_url=…&region_name=…")
        return value

    @model_validator(mode="after")
    def _validations_may_end(self) -> Environment:
        least_s = self.validation_timeout_s + SWEEP_MARGIN_S
        if self.sweep_after_s < least_s:
            raise ValueError(
                f"SHOAL_SWEEP_AFTER_S: {self.sweep_after_s:g} is too short for SHOAL_VALIDATION_TIMEOUT_S"
                f" {self.validation_timeout_s:g}; use at least {least_s:g}, or leave it out"
            )
        return self

    @property
    def sweep_after_s(self) -> float:
        """Age at which the sweeper takes a claimed validation to be dead: it ends by itself well before."""
        return self.chosen_sweep_after_s or 1.25 * self.validation_timeout_s + SWEEP_MARGIN_S

    @property
    def hosts(self) -> list[str]:
        """Host names this site answers to; the machine's own name is always one of them."""
        return [*_listed(self.allowed_hosts), socket.gethostname()]

    @property
    def origins(self) -> list[str]:
        """Origins whose forms are trusted, ``https://…`` each."""
        return _listed(self.trusted_origins)

    @property
    def public_web_url(self) -> str:
        return (self.web_url or f"http://127.0.0.1:{self.web_port}").rstrip("/")

    @property
    def public_gateway_url(self) -> str:
        return (self.gateway_url or f"http://127.0.0.1:{self.gateway_port}").rstrip("/")


def load_environment() -> Environment:
    """The environment of this process. Raises ``ImproperlyConfigured`` with one line for each wrong value."""
    try:
        found = Environment()  # type: ignore[call-arg]  # pydantic fills it from the environment
    except ValidationError as error:
        raise ImproperlyConfigured(describe_problems(error)) from None
    found.home = found.home.expanduser().resolve()
    return found


def read_or_make_secret_key(home: Path) -> str:
    """The signing key kept in ``home``, made on the first start; two processes that start at once get the same."""
    path = home / "secret_key"
    if not path.exists():
        home.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f"secret_key.{os.getpid()}")
        fresh.touch(mode=0o600)
        fresh.write_text(secrets.token_urlsafe(64), encoding="utf-8")
        try:
            os.link(fresh, path)
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    return path.read_text(encoding="utf-8").strip()


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
