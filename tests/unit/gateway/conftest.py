"""Properties are checked for truth, not for speed: a busy machine must not fail them."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
