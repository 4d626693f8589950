"""uPlot comes out of the pinned wheel, byte for byte what was looked at, and is served as a static file."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders

from fleet.finders import UPLOT_FILES, UplotFinder

SHA256 = {
    "uplot.iife.min.js": "2d27e8ad3d228164525ce213f9dc716f39b4e3aee0cc773fb3491c96cf4921a2",
    "uplot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}


@pytest.mark.parametrize("name", UPLOT_FILES)
def test_the_wheels_file_is_the_one_that_was_looked_at(name: str) -> None:
    path = finders.find(f"uplot/{name}")
    assert path is not None
    assert hashlib.sha256(Path(path).read_bytes()).hexdigest() == SHA256[name]


def test_nothing_else_of_the_wheel_is_served() -> None:
    finder = UplotFinder()
    for path in ("uplot/__init__.py", "uplot/../__init__.py", "uplot.min.css", "other/uplot.min.css"):
        assert finder.find(path) == []
    assert sorted(name for name, _ in finder.list(None)) == sorted(SHA256)
