"""What holds for every test: properties have no deadline of their own, since machines are slow at times."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("shoal", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shoal")
