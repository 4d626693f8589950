"""Ending a task for certain."""

from __future__ import annotations

import asyncio
from typing import Any

AGAIN_S = 0.5


async def end_task(task: asyncio.Task[Any]) -> None:
    """Cancel ``task`` until it has ended; raises what it ended with, except its cancellation.

    Once is not enough: ``asyncio.wait_for`` of Python 3.11, which every NATS request goes through, swallows a
    cancellation that meets the answer in the same turn of the loop (CPython issue 86296).
    """
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=AGAIN_S)
    if not task.cancelled():
        task.result()
