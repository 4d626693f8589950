"""How operations are called in the OpenAPI schema."""

from __future__ import annotations

from drf_spectacular.openapi import AutoSchema


class NamedOperations(AutoSchema):
    """``workers_get`` for ``workers/`` beside ``workers_retrieve`` for ``workers/{key}/``."""

    def get_operation_id(self) -> str:
        found = str(super().get_operation_id())
        if "{" not in self.path and found.endswith("_retrieve"):
            return found.removesuffix("_retrieve") + "_get"
        return found
