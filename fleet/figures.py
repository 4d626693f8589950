"""Figures as people read them; ``static/fleet/figures.js`` writes the same texts. Unknown is a dash, never 0."""

from __future__ import annotations

UNKNOWN = "–"
UNITS = ("B", "kB", "MB", "GB", "TB")


def percent(share: float | None) -> str:
    """A share of 0 to 1 in whole per cent, without the sign."""
    return UNKNOWN if share is None else f"{share * 100:.0f}"


def amount(value: float | None) -> str:
    """A number in at most five characters: 0, 3.2, 182, 12.4k, 3.1M."""
    if value is None:
        return UNKNOWN
    for limit, divisor, suffix in ((999.5, 1, ""), (999_500, 1e3, "k"), (float("inf"), 1e6, "M")):
        if value < limit:
            scaled = value / divisor
            whole = scaled >= 99.95 or (not suffix and (scaled >= 9.95 or scaled == 0))
            return f"{scaled:.0f}{suffix}" if whole else f"{scaled:.1f}{suffix}"
    return UNKNOWN


def size(count: float | None) -> str:
    """Bytes in decimal units."""
    if count is None:
        return UNKNOWN
    unit = 0
    while count >= 999.5 and unit < len(UNITS) - 1:
        count /= 1000
        unit += 1
    return f"{count:.0f} {UNITS[unit]}" if unit == 0 or count >= 100 else f"{count:.1f} {UNITS[unit]}"


def size_of(part: float | None, whole: float | None) -> str:
    """``3.4 / 8.4 GB``: both in the unit of the whole where both are known."""
    if part is None or whole is None:
        return f"{size(part)} / {size(whole)}"
    unit = next((at for at in range(len(UNITS)) if whole < 999.5 * 1000**at), len(UNITS) - 1)
    digits = 0 if unit == 0 or whole >= 100 * 1000**unit else 1
    return f"{part / 1000**unit:.{digits}f} / {size(whole)}"


def duration(seconds: float | None) -> str:
    """A span in its two largest units: 14 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    if seconds is None:
        return UNKNOWN
    whole = int(max(0.0, seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def age(seconds: float | None) -> str:
    """A span in its largest unit: 14 s, 3 min, 2 h, 3 d."""
    return UNKNOWN if seconds is None else " ".join(duration(seconds).split(" ")[:2])
