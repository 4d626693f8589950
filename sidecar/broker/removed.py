"""Models that left the registry: their waiting jobs are taken and refused, then their consumers go."""

from __future__ import annotations

from collections.abc import Mapping

import nats.errors
import structlog
from nats.js.errors import APIError

from sidecar.broker.link import Link, Source
from wire.subjects import LANE, LANES

log = structlog.get_logger(__name__)

# A registry that is written anew is not one that lost its models.
GRACE_S = 5.0
MAX_KEPT = 4096


class RemovedModels:
    """Since when a model with work or a consumer is not registered; times are of the loop's clock."""

    def __init__(self, pool: str) -> None:
        self._pool = pool
        self._models: frozenset[str] = frozenset()
        self._known = False
        self._since: dict[str, float] = {}

    def set_models(self, models: frozenset[str], now: float) -> None:
        """These are registered now."""
        for model in self._models - models:
            self._since.setdefault(model, now)
        self._models = models
        self._known = True
        for model in models & self._since.keys():
            del self._since[model]

    def gone(self, model: str, now: float) -> bool:
        """Whether ``model`` is not registered, and not just for a moment."""
        return now - self._since.get(model, now) >= GRACE_S

    def to_empty(self, waiting: Mapping[Source, int], now: float) -> list[Source]:
        """Sources whose jobs nobody will ever run."""
        if not self._known:
            return []
        for source in waiting:
            if source.model not in self._models and len(self._since) < MAX_KEPT:
                self._since.setdefault(source.model, now)
        return [source for source in waiting if self.gone(source.model, now)]

    def to_delete(self, waiting: Mapping[Source, int], now: float) -> list[Source]:
        """Sources of gone models where nothing waits any more; each once, and their model is forgotten with them."""
        busy = {source.model for source in waiting}
        done = [model for model in self._since if model not in busy and self.gone(model, now)]
        for model in done:
            del self._since[model]
        lanes = [LANE, *(str(number) for number in range(1, LANES + 1))]
        return [Source(self._pool, model, lane) for model in done for lane in lanes]

    async def delete(self, link: Link, source: Source) -> None:
        """Remove the consumer of ``source``; one that cannot be reached goes by itself when it was idle for long."""
        try:
            await link.delete_consumer(source)
        except (nats.errors.Error, APIError, TimeoutError, OSError) as error:
            log.info("cannot remove a consumer, it ends by itself", model=source.model, error=repr(error))
