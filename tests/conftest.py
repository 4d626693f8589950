"""What holds for every test: properties have no deadline of their own, since machines are slow at times."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# of processes that tests start: in half precision a vector depends on its batch by rounding
os.environ.setdefault("SHOAL_DTYPE", "float32")
settings.register_profile("shoal", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shoal")
