"""Look of the Django admin: the pages' deep sea teal, their mark, their corners."""

from __future__ import annotations

from django.http import HttpRequest
from django.templatetags.static import static


def _mark(request: HttpRequest) -> str:
    return static("img/mark.svg")


UNFOLD = {
    "SITE_TITLE": "Shoal admin",
    "SITE_HEADER": "Shoal",
    "SITE_SUBHEADER": "Every row behind the pages",
    "SITE_URL": "/",
    "SITE_ICON": _mark,
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": _mark}],
    "SHOW_HISTORY": True,
    "SHOW_VIEW_ON_SITE": False,
    "BORDER_RADIUS": "6px",
    "COLORS": {
        "primary": {
            "50": "oklch(97.5% .013 205)",
            "100": "oklch(94.5% .026 205)",
            "200": "oklch(89% .047 205)",
            "300": "oklch(81.5% .072 205)",
            "400": "oklch(73% .088 205)",
            "500": "oklch(60% .092 207)",
            "600": "oklch(46.5% .077 208)",
            "700": "oklch(40% .066 209)",
            "800": "oklch(34.5% .055 210)",
            "900": "oklch(29.5% .045 211)",
            "950": "oklch(22% .034 212)",
        },
    },
}
