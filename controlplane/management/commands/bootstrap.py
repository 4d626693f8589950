"""``manage.py bootstrap``: the first admin, team, keys and base models; prints secrets made now and nothing else."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.bootstrap import bootstrap_site
from wire.errors import ShoalError


class Command(BaseCommand):
    help = "Make the first admin, team, API key, machine key and base models. May be repeated."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print the new secrets as one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            made = bootstrap_site()
        except ShoalError as error:
            raise CommandError(error.info.message) from error
        if options["json"]:
            self.stdout.write(json.dumps(made))
            return
        for name, value in made.items():
            self.stdout.write(f"{name}: {value}")
