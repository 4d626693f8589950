"""Settings of the gateway, from the environment; every error is reported at once at boot."""

from __future__ import annotations

from typing import Any

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import SettingsConfigDict

from fabric.settings import QueueEnvironment, with_file_values
from gateway.bodies.texts import TextBounds

MAX_TIMEOUT_MS = 300_000


class GatewaySettings(QueueEnvironment):
    """What one gateway needs to know. The queue settings must equal the sidecars'."""

    model_config = SettingsConfigDict(extra="ignore", env_ignore_empty=True, populate_by_name=True)

    nats_url: str = Field(default="nats://127.0.0.1:4222", validation_alias="NATS_URL")
    host: str = Field(default="127.0.0.1", validation_alias="SHOAL_GATEWAY_HOST", min_length=1)
    port: int = Field(default=8080, validation_alias="SHOAL_GATEWAY_PORT", ge=0, le=65535)
    metrics_key: SecretStr | None = Field(default=None, validation_alias="SHOAL_METRICS_KEY")
    log_level: str = Field(
        default="INFO", validation_alias="SHOAL_LOG_LEVEL", pattern="(?i)^(debug|info|warning|error|critical)$"
    )

    max_body_bytes: int = Field(default=2 * 1024**2, validation_alias="SHOAL_MAX_BODY_BYTES", gt=0)
    max_inputs: int = Field(default=2048, validation_alias="SHOAL_MAX_INPUTS", gt=0)
    max_text_bytes: int = Field(default=256 * 1024, validation_alias="SHOAL_MAX_TEXT_BYTES", gt=0)
    max_in_flight: int = Field(default=2048, validation_alias="SHOAL_MAX_IN_FLIGHT", gt=0)
    max_in_flight_bytes: int = Field(default=256 * 1024**2, validation_alias="SHOAL_MAX_IN_FLIGHT_BYTES", gt=0)
    request_timeout_ms: int = Field(
        default=30_000, validation_alias="SHOAL_REQUEST_TIMEOUT_MS", ge=1, le=MAX_TIMEOUT_MS
    )
    generate_timeout_ms: int = Field(
        default=MAX_TIMEOUT_MS, validation_alias="SHOAL_GENERATE_TIMEOUT_MS", ge=1, le=MAX_TIMEOUT_MS
    )
    stream_idle_s: float = Field(default=60.0, validation_alias="SHOAL_STREAM_IDLE_S", gt=0)
    body_timeout_s: float = Field(default=15.0, validation_alias="SHOAL_BODY_TIMEOUT_S", gt=0)
    publish_timeout_s: float = Field(default=5.0, validation_alias="SHOAL_PUBLISH_TIMEOUT_S", gt=0)
    no_worker_s: float = Field(default=15.0, validation_alias="SHOAL_NO_WORKER_S", gt=0)
    shutdown_grace_s: int = Field(default=30, validation_alias="SHOAL_SHUTDOWN_GRACE_S", ge=0)

    @model_validator(mode="before")
    @classmethod
    def _read_files(cls, values: Any) -> Any:
        return with_file_values(values, cls.model_fields)

    @property
    def text_bounds(self) -> TextBounds:
        """Bounds of the texts of a request."""
        return TextBounds(self.max_inputs, self.max_text_bytes)
