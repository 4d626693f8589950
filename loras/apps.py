from __future__ import annotations

from django.apps import AppConfig


class LorasConfig(AppConfig):
    name = "loras"
    label = "loras"
    verbose_name = "Adapters"
