"""Models that could not be loaded: for how long nobody tries again."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass

from wire.errors import Code, ErrorInfo, ShoalError

RETRY_AFTER_S = 30.0
_PAUSES_S = {
    # the sidecar fetches such a file anew, and the very next attempt may read a good one
    Code.ARTIFACT_CORRUPT: 0.0,
    Code.ARTIFACT_UNAVAILABLE: 0.0,
    # room comes and goes with the jobs of others
    Code.OUT_OF_MEMORY: 5.0,
    # the same bytes fail the same way
    Code.ADAPTER_UNLOADABLE: 3600.0,
}


@dataclass(frozen=True, slots=True)
class _Failure:
    digest: str
    info: ErrorInfo
    until: float


class Failures:
    """The last failure of each model; not safe for several threads by itself."""

    def __init__(self) -> None:
        self._failed: dict[str, _Failure] = {}

    def note(self, model_id: str, digest: str, info: ErrorInfo) -> None:
        """Loading ``digest`` failed now."""
        pause_s = _PAUSES_S.get(info.code, RETRY_AFTER_S)
        self._failed[model_id] = _Failure(digest, info, time.monotonic() + pause_s)

    def check(self, model_id: str, digest: str) -> None:
        """Raises the failure as a ``ShoalError`` while it holds for these very weights."""
        failure = self._failed.get(model_id)
        if failure is not None and failure.digest == digest and time.monotonic() < failure.until:
            raise ShoalError(failure.info.code, failure.info.message, hint=failure.info.hint)

    def forget(self, model_id: str) -> None:
        self._failed.pop(model_id, None)

    def keep_only(self, model_ids: Collection[str]) -> None:
        """Forget models that the pool has no more."""
        for gone in self._failed.keys() - set(model_ids):
            del self._failed[gone]
