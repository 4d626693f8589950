"""``manage.py up``: the whole of Shoal on this machine."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand


class Command(BaseCommand):
    help = "Run all of Shoal on this machine, on loopback only: servers, pages, queue, gateway, workers."
    # nothing may be checked or opened before the stack has made its home
    requires_system_checks: list[str] = []
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--quiet", action="store_true", help="print only the stack's own lines")

    def handle(self, *args: Any, quiet: bool, **options: Any) -> None:
        """Become the supervisor: the same process id, without Django in its memory."""
        command = [sys.executable, "-m", "controlplane.stack", *(["--quiet"] if quiet else [])]
        os.execv(sys.executable, command)  # noqa: S606 - our own module
