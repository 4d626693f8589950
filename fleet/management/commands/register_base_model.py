"""``manage.py register_base_model``: make a base model known to uploads, gateways and workers."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from fleet.services import register_base_model
from wire.errors import ShoalError


class Command(BaseCommand):
    help = "Register a base model from package:…, path:… or hub:…"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--id", required=True, help="what requests name, for example org/model")
        parser.add_argument("--source", required=True, help="package:NAME[/DIR], path:DIR or hub:ID")
        parser.add_argument("--pool", default="default")
        parser.add_argument("--unpinned", action="store_true", help="load on first use, evict under pressure")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            found = register_base_model(
                source=options["source"], model_id=options["id"], pool=options["pool"], pinned=not options["unpinned"]
            )
        except ShoalError as error:
            raise CommandError(" ".join(filter(None, [error.info.message, error.info.hint]))) from error
        self.stdout.write(
            f"{found.model.model_id} {'registered' if found.changed else 'unchanged'}: {found.model.digest}"
        )
