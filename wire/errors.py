"""The one error taxonomy: every refusal or failure has a stable code, a sentence, and says whether a retry can help."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec


class Code(StrEnum):
    """Stable codes of requests and jobs. Codes of validation findings are in ``wire.reports``."""

    # the request itself
    INVALID_JSON = "invalid_json"
    INVALID_REQUEST = "invalid_request"
    INVALID_NAME = "invalid_name"
    UNSUPPORTED_PARAMETER = "unsupported_parameter"
    INPUT_EMPTY = "input_empty"
    INPUT_TOO_LONG = "input_too_long"
    TOO_MANY_INPUTS = "too_many_inputs"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    TASK_UNSUPPORTED = "task_unsupported"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    CLIENT_CLOSED = "client_closed"
    # who asks
    UNAUTHENTICATED = "invalid_api_key"
    FORBIDDEN = "insufficient_scope"
    RATE_LIMITED = "rate_limited"
    # what is asked for
    MODEL_NOT_FOUND = "model_not_found"
    VERSION_NOT_FOUND = "version_not_found"
    ALIAS_NOT_FOUND = "alias_not_found"
    VERSION_NOT_READY = "version_not_ready"
    # registry
    CONFLICT = "conflict"
    STALE = "stale"
    IN_USE = "in_use"
    UPLOAD_INVALID = "upload_invalid"
    STORAGE_FULL = "storage_full"
    QUOTA_EXCEEDED = "quota_exceeded"
    # resumable uploads
    OFFSET_MISMATCH = "offset_mismatch"
    UPLOAD_LOCKED = "upload_locked"
    CHECKSUM_MISMATCH = "checksum_mismatch"
    UPLOAD_EXPIRED = "upload_expired"
    PROTOCOL_VERSION = "protocol_version"
    # capacity and time
    QUEUE_FULL = "queue_full"
    NO_WORKER = "no_worker"
    QUEUE_UNAVAILABLE = "queue_unavailable"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    CANCELLED = "cancelled"
    # while serving
    ARTIFACT_UNAVAILABLE = "artifact_unavailable"
    ARTIFACT_CORRUPT = "artifact_corrupt"
    ADAPTER_UNLOADABLE = "adapter_unloadable"
    MODEL_UNLOADABLE = "model_unloadable"
    OUT_OF_MEMORY = "out_of_memory"
    NONFINITE_OUTPUT = "nonfinite_output"
    POISON_JOB = "poison_job"
    INTERNAL = "internal_error"


RETRYABLE = frozenset(
    {
        Code.RATE_LIMITED,
        Code.STORAGE_FULL,
        Code.QUEUE_FULL,
        Code.NO_WORKER,
        Code.QUEUE_UNAVAILABLE,
        Code.DEADLINE_EXCEEDED,
        Code.ARTIFACT_UNAVAILABLE,
        Code.ARTIFACT_CORRUPT,
        Code.OUT_OF_MEMORY,
        Code.INTERNAL,
    }
)

HTTP_STATUS: dict[Code, int] = {
    Code.INVALID_JSON: 400,
    Code.INVALID_REQUEST: 400,
    Code.INVALID_NAME: 400,
    Code.UNSUPPORTED_PARAMETER: 400,
    Code.INPUT_EMPTY: 400,
    Code.INPUT_TOO_LONG: 400,
    Code.TOO_MANY_INPUTS: 400,
    Code.PAYLOAD_TOO_LARGE: 413,
    Code.TASK_UNSUPPORTED: 400,
    Code.NOT_FOUND: 404,
    Code.METHOD_NOT_ALLOWED: 405,
    Code.CLIENT_CLOSED: 400,
    Code.UNAUTHENTICATED: 401,
    Code.FORBIDDEN: 403,
    Code.RATE_LIMITED: 429,
    Code.MODEL_NOT_FOUND: 404,
    Code.VERSION_NOT_FOUND: 404,
    Code.ALIAS_NOT_FOUND: 404,
    Code.VERSION_NOT_READY: 409,
    Code.CONFLICT: 409,
    Code.STALE: 409,
    Code.IN_USE: 409,
    Code.UPLOAD_INVALID: 400,
    Code.STORAGE_FULL: 507,
    Code.QUOTA_EXCEEDED: 403,
    Code.OFFSET_MISMATCH: 409,
    Code.UPLOAD_LOCKED: 423,
    Code.CHECKSUM_MISMATCH: 460,
    Code.UPLOAD_EXPIRED: 410,
    Code.PROTOCOL_VERSION: 412,
    Code.QUEUE_FULL: 429,
    Code.NO_WORKER: 503,
    Code.QUEUE_UNAVAILABLE: 503,
    Code.DEADLINE_EXCEEDED: 504,
    Code.CANCELLED: 499,
    Code.ARTIFACT_UNAVAILABLE: 503,
    Code.ARTIFACT_CORRUPT: 503,
    Code.ADAPTER_UNLOADABLE: 500,
    Code.MODEL_UNLOADABLE: 503,
    Code.OUT_OF_MEMORY: 503,
    Code.NONFINITE_OUTPUT: 500,
    Code.POISON_JOB: 500,
    Code.INTERNAL: 500,
}


class ErrorInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error as it crosses a process boundary."""

    code: Code
    message: str
    param: str | None = None
    hint: str | None = None

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later without a change."""
        return self.code in RETRYABLE

    @property
    def status(self) -> int:
        """The HTTP status an edge answers with."""
        return HTTP_STATUS[self.code]


class ShoalError(Exception):
    """Raised by any verb that says no; edges turn it into their answer with :attr:`info`."""

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        param: str | None = None,
        hint: str | None = None,
        detail: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.info = ErrorInfo(code=code, message=message, param=param, hint=hint)
        self.detail = detail or {}

    @property
    def code(self) -> Code:
        return self.info.code

    @property
    def retryable(self) -> bool:
        return self.info.retryable

    @property
    def status(self) -> int:
        return self.info.status
