"""Adapters, their versions, aliases and stored files; what requests ran on; evaluations."""

from loras.models.adapters import Adapter, Alias, AliasHold, AliasMove
from loras.models.artifacts import Artifact, VersionFile
from loras.models.evaluations import EvaluationRun
from loras.models.uploads import Upload
from loras.models.usage import UsageMinute
from loras.models.versions import Version

__all__ = [
    "Adapter",
    "Alias",
    "AliasHold",
    "AliasMove",
    "Artifact",
    "EvaluationRun",
    "Upload",
    "UsageMinute",
    "Version",
    "VersionFile",
]
