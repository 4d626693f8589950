"""Waiting for a condition, with a limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


async def until(condition: Callable[[], bool], timeout_s: float = 15.0) -> None:
    """Return once ``condition()`` is true; fails the test after ``timeout_s``."""
    limit = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < limit, "condition did not come true in time"
        await asyncio.sleep(0.01)


async def until_async(condition: Callable[[], Awaitable[object]], timeout_s: float = 30.0) -> None:
    """Return once ``await condition()`` is true; fails the test after ``timeout_s``."""
    limit = time.monotonic() + timeout_s
    while not await condition():
        assert time.monotonic() < limit, "condition did not come true in time"
        await asyncio.sleep(0.05)
