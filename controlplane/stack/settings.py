"""Typed settings of ``manage.py up``; every wrong value is reported at once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from controlplane.stack.failures import StackError


class FileValues(PydanticBaseSettingsSource):
    """``<NAME>_FILE``: the content of the named file stands in for ``<NAME>``."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        name = str(field.validation_alias)
        path = os.environ.get(f"{name}_FILE")
        if not path:
            return None, name, False
        try:
            return Path(path).read_text(encoding="utf-8").strip(), name, False
        except OSError as error:
            raise StackError(f"{name}_FILE names {path}: {error.strerror}") from None

    def __call__(self) -> dict[str, Any]:
        found = {}
        for field_name, field in self.settings_cls.model_fields.items():
            value, name, _ = self.get_field_value(field, field_name)
            if value is not None:
                found[name] = value
        return found


class StackSettings(BaseSettings):
    """What the embedded stack decides itself; all else in the environment goes to the children as it is."""

    model_config = SettingsConfigDict(extra="ignore", env_ignore_empty=True)

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
    boot_timeout_s: float = Field(default=180.0, validation_alias="SHOAL_BOOT_TIMEOUT_S", gt=0)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, FileValues(settings_cls)


def load_settings() -> StackSettings:
    """The settings of this process. Raises ``StackError`` with one line for each wrong value."""
    try:
        return StackSettings()
    except ValidationError as error:
        lines = [f"  {'.'.join(str(part) for part in row['loc'])}: {row['msg']}" for row in error.errors()]
        raise StackError("settings cannot be used:\n" + "\n".join(lines)) from None
