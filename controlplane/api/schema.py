"""Bodies that the OpenAPI schema shares."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers


class ErrorDetail(serializers.Serializer[Any]):
    """What went wrong. ``code`` is stable; ``hint`` is the next step."""

    message = serializers.CharField()
    type = serializers.CharField()
    code = serializers.CharField()
    param = serializers.CharField(allow_null=True)
    hint = serializers.CharField(allow_null=True)


class ErrorBody(serializers.Serializer[Any]):
    """Every refusal."""

    error = ErrorDetail()
