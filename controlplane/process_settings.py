"""What the settings of every process have in common: values from the environment or from files, all errors at once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import ValidationError, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict


class ProcessSettings(BaseSettings):
    """Settings whose fields name their environment variable as ``validation_alias``; an empty variable is an unset one,
    and ``<NAME>_FILE`` names a file whose content stands in for ``<NAME>``."""

    model_config = SettingsConfigDict(extra="ignore", env_ignore_empty=True)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, _NamedFiles(settings_cls)

    @field_validator("*", mode="before")
    @classmethod
    def _file_was_read(cls, value: Any) -> Any:
        if isinstance(value, _Unreadable):
            raise ValueError(value.reason)  # noqa: TRY004  (pydantic reports ValueError as a finding)
        return value


def describe_problems(error: ValidationError) -> str:
    """One line for each value that cannot be used, below a heading."""
    rows = [(".".join(str(part) for part in row["loc"]), row["msg"]) for row in error.errors()]
    return "\n".join(
        ["settings cannot be used:", *(f"  {name}: {text}" if name else f"  {text}" for name, text in rows)]
    )


class _Unreadable:
    """Stands where a file could not be read: no validator takes it, so that it is reported with all other errors."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class _NamedFiles(PydanticBaseSettingsSource):
    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        name = str(field.validation_alias or field_name)
        path = os.environ.get(f"{name}_FILE")
        if not path:
            return None, name, False
        try:
            return Path(path).read_text(encoding="utf-8").strip(), name, False
        except OSError as error:
            return _Unreadable(f"{name}_FILE names {path}: {error.strerror}"), name, False

    def __call__(self) -> dict[str, Any]:
        found = {}
        for field_name, field in self.settings_cls.model_fields.items():
            value, name, _ = self.get_field_value(field, field_name)
            if value is not None:
                found[name] = value
        return found
