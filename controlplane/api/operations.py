"""How operations are called in the OpenAPI schema."""

from __future__ import annotations

from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import Direction

from controlplane.api.schema import ErrorBody

# what any address may answer: a bad parameter, nobody known, not allowed, not there
REFUSALS = ("400", "401", "403", "404")


class NamedOperations(AutoSchema):
    """``workers_get`` for ``workers/`` beside ``workers_retrieve`` for ``workers/{key}/``; all of them may refuse."""

    def _get_response_bodies(self, direction: Direction = "response") -> dict[str, Any]:
        found: dict[str, Any] = super()._get_response_bodies(direction)
        for code in REFUSALS:
            refusal = self._get_response_for_code(ErrorBody, code, direction=direction)  # type: ignore[no-untyped-call]
            found.setdefault(code, refusal)
        return found

    def get_operation_id(self) -> str:
        found = str(super().get_operation_id())
        if "{" not in self.path and found.endswith("_retrieve"):
            return found.removesuffix("_retrieve") + "_get"
        return found
