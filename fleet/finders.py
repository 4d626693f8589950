"""Static files that come out of a wheel: uPlot, carried by ``youplot``, served as ``uplot/…``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage, Storage

UPLOT_FILES = ("uplot.iife.min.js", "uplot.min.css")
PREFIX = "uplot"


def uplot_directory() -> Path:
    """Where the wheel keeps uPlot's files; found without importing the package."""
    spec = find_spec("youplot")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the package youplot, which carries uPlot, is not installed")
    return Path(spec.origin).parent / "vendor"


class UplotFinder(BaseFinder):
    """Finds exactly the two files of uPlot and nothing else in the wheel."""

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        """The absolute path of ``uplot/<file>``, or an empty list."""
        prefix, _, name = path.partition("/")
        if prefix != PREFIX or name not in UPLOT_FILES:
            return []
        found = str(uplot_directory() / name)
        return [found] if find_all else found

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterator[tuple[str, Storage]]:
        """Both files, for collectstatic."""
        storage = FileSystemStorage(location=str(uplot_directory()))
        storage.prefix = PREFIX  # type: ignore[attr-defined]
        for name in UPLOT_FILES:
            yield name, storage
