"""Adapters, their versions, aliases and stored files."""

from loras.models.adapters import Adapter, Alias, AliasMove
from loras.models.artifacts import Artifact, VersionFile
from loras.models.uploads import Upload
from loras.models.versions import Version

__all__ = ["Adapter", "Alias", "AliasMove", "Artifact", "Upload", "Version", "VersionFile"]
