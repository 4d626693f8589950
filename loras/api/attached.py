"""The rows of an evaluation as they come with an upload."""

from __future__ import annotations

from typing import Any

from django.utils.datastructures import MultiValueDict

from loras.evaluation.rows import MAX_BYTES
from loras.uploads.handlers import EVALUATION_FIELD


def take_evaluation(files: MultiValueDict[str, Any]) -> bytes:
    """What the file ``evaluation`` holds; empty without one.

    No more is read than what is sure to be refused.
    """
    found = files.get(EVALUATION_FIELD)
    return bytes(found.read(MAX_BYTES + 1)) if found is not None else b""
