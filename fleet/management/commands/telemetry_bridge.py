"""``manage.py telemetry_bridge``: live utilization from NATS to Redis, the database and the dashboards."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from fleet.telemetry.bridge import Bridge


class Command(BaseCommand):
    help = "Bridge worker telemetry from NATS to Redis, roll-ups and the live pages; runs until SIGTERM."

    def handle(self, *args: Any, **options: Any) -> None:
        asyncio.run(_serve())


async def _serve() -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await Bridge(settings.SHOAL.nats_url, settings.SHOAL.redis_url).run(stop)
