"""Typed settings of the control plane, read once from the environment; every error is reported at once."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from pydantic import Field, ValidationError, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict


class FileSecrets(PydanticBaseSettingsSource):
    """Values of ``<NAME>_FILE``: the content of the named file stands in for ``<NAME>``."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        name = str(field.validation_alias or field_name)
        path = os.environ.get(f"{name}_FILE")
        if not path:
            return None, name, False
        try:
            return Path(path).read_text(encoding="utf-8").strip(), name, False
        except OSError as error:
            # a value that no validator takes, so that it is reported together with all other errors
            return UnreadableSecret(f"{name}_FILE names {path}: {error.strerror}"), name, False

    def __call__(self) -> dict[str, Any]:
        found = {}
        for field_name, field in self.settings_cls.model_fields.items():
            value, name, _ = self.get_field_value(field, field_name)
            if value is not None:
                found[name] = value
        return found


class UnreadableSecret:
    """Stands where a secret's file could not be read; names the file and the reason in the boot error."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Environment(BaseSettings):
    """Environment of web, Celery and the management commands. Sizes in bytes, times in seconds."""

    model_config = SettingsConfigDict(extra="ignore", env_ignore_empty=True)

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
    validation_timeout_s: float = Field(60.0, validation_alias="SHOAL_VALIDATION_TIMEOUT_S", gt=0)
    validation_memory_bytes: int = Field(4 * 1024**3, validation_alias="SHOAL_VALIDATION_MEMORY_BYTES", gt=0)
    # a validation (sandbox, then probe) ends by itself within twice its time limit; later than that it is dead
    sweep_after_s: float = Field(150.0, validation_alias="SHOAL_SWEEP_AFTER_S", gt=0)
    max_rank: int = Field(64, validation_alias="SHOAL_MAX_RANK", gt=0)
    probe_socket: str = Field("", validation_alias="SHOAL_PROBE_SOCKET")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, FileSecrets(settings_cls)

    @field_validator("*", mode="before")
    @classmethod
    def _secret_was_read(cls, value: Any) -> Any:
        if isinstance(value, UnreadableSecret):
            raise ValueError(value.reason)  # noqa: TRY004  (pydantic reports ValueError as a finding)
        return value

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
        lines = [f"  {'.'.join(str(part) for part in row['loc'])}: {row['msg']}" for row in error.errors()]
        raise ImproperlyConfigured("settings cannot be used:\n" + "\n".join(lines)) from None
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
