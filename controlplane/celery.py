"""Celery application: ``celery -A controlplane.celery:app worker`` and ``… beat``."""

from __future__ import annotations

import os

from celery import Celery
from celery.signals import beat_init, setup_logging

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

app = Celery("shoal")
app.config_from_object("controlplane.settings.queue:CELERY")
app.autodiscover_tasks(["controlplane.events", "loras", "fleet"])


@setup_logging.connect  # type: ignore[untyped-decorator]
def keep_django_logging(**_: object) -> None:
    """Leave logging as Django configured it; without a receiver Celery would install its own."""
    from logging.config import dictConfig

    from django.conf import settings

    dictConfig(settings.LOGGING)


@beat_init.connect  # type: ignore[untyped-decorator]
def note_beat_started(**_: object) -> None:
    """Touch a file that says that beat runs: its own schedule is written again only after minutes."""
    from django.conf import settings

    from controlplane.stack.home import Home

    Home(settings.SHOAL.home).beat_started_path.touch()
