"""Look of the Django admin."""

from __future__ import annotations

UNFOLD = {
    "SITE_TITLE": "Shoal admin",
    "SITE_HEADER": "Shoal",
    "SITE_URL": "/",
    "SHOW_HISTORY": True,
    "SHOW_VIEW_ON_SITE": False,
}
