"""Which names an upload may contain. Files are never written under these names; they only tell files apart."""

from __future__ import annotations

from loras.validation.findings import Refused, clipped, failed
from wire.reports import Finding
from wire.validation import ArchiveLimits

CHECK = "Archive is safe"
_REPACK = "Pack the adapter's folder again with plain files and relative names only."


class SafeNames:
    """Checks names one by one and remembers them, since two names may not differ by case alone."""

    def __init__(self, limits: ArchiveLimits) -> None:
        self._limits = limits
        self._seen: dict[str, str] = {}

    def accept(self, raw: str) -> str:
        """The name with ``/`` between parts; raises ``Refused`` for anything that could leave its folder."""
        problem = self._problem(raw)
        if problem is not None:
            raise unsafe(f"entry {clipped(raw)!r} {problem}")
        name = "/".join(part for part in raw.replace("\\", "/").split("/") if part not in ("", "."))
        # bytes of another encoding than UTF-8 would break the report that names the file
        name = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
        folded = name.casefold()
        if folded in self._seen:
            raise unsafe(f"entries {clipped(self._seen[folded])!r} and {clipped(name)!r} have the same name")
        self._seen[folded] = name
        return name

    def _problem(self, raw: str) -> str | None:
        limits = self._limits
        name = raw.replace("\\", "/")
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if "\0" in name:
            return "contains a NUL byte"
        if any(ord(char) < 32 or ord(char) == 127 for char in name):
            return "contains a control character"
        if name.startswith("/") or (len(name) > 1 and name[1] == ":" and name[0].isalpha()):
            return "is an absolute path"
        if ".." in parts:
            return "points outside of the archive"
        if not parts:
            return "is empty"
        if len(parts) > limits.depth:
            return f"is {len(parts)} folders deep (limit {limits.depth})"
        encoded = [len(part.encode(errors="surrogateescape")) for part in parts]
        if max(encoded) > limits.name_bytes or sum(encoded) + len(parts) > limits.path_bytes:
            return f"is {sum(encoded)} bytes long (limit {limits.name_bytes} a part, {limits.path_bytes} in all)"
        return None


def unsafe(found: str) -> Refused:
    """The refusal of a whole archive for one entry that could do harm."""
    return Refused(failed(CHECK, Finding.ARCHIVE_UNSAFE, f"Nothing was unpacked: {found}.", _REPACK))
