"""Typed settings of ``manage.py up``; every wrong value is reported at once."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, ValidationError

from controlplane.process_settings import ProcessSettings, describe_problems
from controlplane.stack.failures import StackError


class StackSettings(ProcessSettings):
    """What the embedded stack decides itself; all else in the environment goes to the children as it is."""

    home: Path = Field(default=Path(".shoal"), validation_alias="SHOAL_HOME")
    web_port: int = Field(default=8000, validation_alias="SHOAL_WEB_PORT", ge=0, le=65_535)
    gateway_port: int = Field(default=8080, validation_alias="SHOAL_GATEWAY_PORT", ge=0, le=65_535)
    nats_port: int = Field(default=0, validation_alias="SHOAL_NATS_PORT", ge=0, le=65_535)
    redis_port: int = Field(default=0, validation_alias="SHOAL_REDIS_PORT", ge=0, le=65_535)
    redis_url: str = Field(default="", validation_alias="REDIS_URL")
    nats_url: str = Field(default="", validation_alias="NATS_URL")
    web_url: str = Field(default="", validation_alias="SHOAL_WEB_URL")
    gateway_url: str = Field(default="", validation_alias="SHOAL_GATEWAY_URL")
    machine_key: str = Field(default="", validation_alias="SHOAL_MACHINE_KEY")
    devices: str = Field(default="auto", validation_alias="SHOAL_DEVICES")
    # the warm probe keeps to the limits that validations have
    validation_timeout_s: float = Field(default=120.0, validation_alias="SHOAL_VALIDATION_TIMEOUT_S", gt=0)
    validation_memory_bytes: int = Field(default=4 * 1024**3, validation_alias="SHOAL_VALIDATION_MEMORY_BYTES", gt=0)
    boot_timeout_s: float = Field(default=180.0, validation_alias="SHOAL_BOOT_TIMEOUT_S", gt=0)


def load_settings() -> StackSettings:
    """The settings of this process. Raises ``StackError`` with one line for each wrong value."""
    try:
        return StackSettings()
    except ValidationError as error:
        raise StackError(describe_problems(error)) from None
