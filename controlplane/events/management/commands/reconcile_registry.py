"""``manage.py reconcile_registry``: compare every KV entry with the database and repair what differs."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from controlplane.events.buckets import BucketsAway
from controlplane.events.registry import reconcile_all


class Command(BaseCommand):
    help = "Compare the registry's KV buckets with the database and repair them."

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            repairs = reconcile_all()
        except BucketsAway as error:
            raise CommandError(f"NATS cannot be used: {error}") from error
        for entry in repairs.rewritten:
            self.stdout.write(f"rewritten {entry}")
        for entry in repairs.removed:
            self.stdout.write(f"removed {entry}")
        if not repairs.rewritten and not repairs.removed:
            self.stdout.write("the buckets equal the database")
