"""Template tags of every page: icons, badges, figures, digests, ages."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import template
from django.contrib.auth.models import AnonymousUser
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.accounts.models import Team
from controlplane.looks import look_of

register = template.Library()

_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB")
# ages below the first number of seconds are counted in the second
_AGES = ((60, 1, "s"), (3600, 60, "min"), (86_400, 3600, "h"), (2_592_000, 86_400, "d"))


@register.simple_tag
def icon(name: str, extra: str = "") -> SafeString:
    """One icon of the sprite, hidden from screen readers: the word stands beside it."""
    return format_html(
        '<svg class="icon {}" aria-hidden="true"><use href="{}#{}"/></svg>',
        extra,
        static("img/icons.svg"),
        name,
    )


@register.simple_tag
def badge(state: Any) -> SafeString:
    """State as icon, word and colour; an unknown state is shown as its own word in grey."""
    look = look_of(str(state))
    return format_html('<span class="badge badge-{}">{}{}</span>', look.kind, icon(look.icon), look.word)


@register.filter
def filesize(size_bytes: int | None) -> str:
    """Bytes in decimal units, as ``static/js/format.js`` shows them."""
    if size_bytes is None:
        return "–"
    value, unit = float(size_bytes), 0
    while value >= 999.5 and unit < len(_BYTE_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.{0 if unit == 0 or value >= 100 else 1}f} {_BYTE_UNITS[unit]}"


@register.filter
def compact(number: float | None) -> str:
    """A figure without a useless ``.0``."""
    return "–" if number is None else f"{number:g}"


@register.filter
def share(value: float | None) -> str:
    """A share of 0 to 1 in per cent, without the sign."""
    return "–" if value is None else f"{value * 100:.2f}"


@register.filter
def whole(value: float | None) -> str:
    """A figure to whole numbers; one decimal below ten."""
    return "–" if value is None else f"{value:.{1 if value < 10 else 0}f}"


@register.filter
def thousands(number: int) -> str:
    """An integer with separators."""
    return f"{number:,}"


@register.simple_tag
def ago(moment: datetime | None, missing: str = "never") -> SafeString:
    """Age of a moment; the script keeps it fresh, the title has the absolute time (UTC)."""
    if moment is None:
        return format_html('<span class="faint">{}</span>', missing)
    return format_html(
        '<time data-relative datetime="{}" title="{}">{}</time>',
        moment.isoformat(),
        f"{moment:%Y-%m-%d %H:%M:%S} UTC",
        _age((timezone.now() - moment).total_seconds()) or f"{moment:%Y-%m-%d}",
    )


def _age(seconds: float) -> str | None:
    if seconds < 5:
        return "just now"
    for limit_s, unit_s, word in _AGES:
        if seconds < limit_s:
            return f"{int(seconds // unit_s)} {word} ago"
    return None


@register.inclusion_tag("ui/digest.html")
def digest(value: str, length: int = 12) -> dict[str, Any]:
    """A digest cut to ``length`` characters with a button that copies all of it."""
    return {"value": value, "short": value[:length]}


@register.inclusion_tag("ui/snippet.html")
def snippet(text: str, name: str, label: str = "Copy") -> dict[str, Any]:
    """A block of code with a copy button; ``name`` is its element id."""
    return {"text": text, "name": name, "label": label}


@register.simple_tag(takes_context=True)
def query(context: dict[str, Any], **changes: Any) -> str:
    """The address's query string with ``changes``; an empty value takes the parameter away."""
    parameters = context["request"].GET.copy()
    for name, value in changes.items():
        parameters.pop(name, None)
        if value not in (None, ""):
            parameters[name] = str(value)
    return f"?{parameters.urlencode()}" if parameters else "?"


@register.simple_tag(takes_context=True)
def team_names(context: dict[str, Any]) -> list[str]:
    """Names of the teams of the person who looks, in order; none when nobody is signed in."""
    user = context.get("user")
    if user is None or isinstance(user, AnonymousUser):
        return []
    return list(Team.objects.filter(memberships__user=user).order_by("name").values_list("name", flat=True))
