"""Which browser the browser tests drive."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
]  # fmt: skip


def chromium() -> str:
    """Path of Chromium. Without one the test is skipped with what to install, or fails where ``CI`` is set."""
    found = os.environ.get("SHOAL_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if found and os.access(found, os.X_OK):
        return found
    reason = "the browser tests need Chromium: apt-get install chromium, or set SHOAL_CHROMIUM to its path"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@contextlib.contextmanager
def open_browser() -> Iterator[Browser]:
    """A Chromium of one test. While it is open its thread has a running event loop, so no asynchronous test can run:
    never keep it for longer than a test."""
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield launched
        launched.close()
