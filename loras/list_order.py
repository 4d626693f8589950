"""Orders of the adapter list: the columns that can be sorted by, and what each is in the database."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import F, OrderBy, QuerySet

from loras.models import Adapter

DEFAULT = "-changed"
# names of the address → fields, most significant first
_FIELDS = {
    "name": ("team__name", "name"),
    "state": ("newest_state",),
    "base": ("base_model__model_id",),
    "versions": ("last_number",),
    "size": ("newest_size_bytes",),
    "changed": ("updated_at",),
}
# the direction that people mean by a first click
_FIRST = {"name": "", "state": "", "base": "", "versions": "-", "size": "-", "changed": "-"}


@dataclass(frozen=True, slots=True)
class Column:
    """A head of the list. ``sort`` is what its link asks for, empty where nothing can be sorted; ``direction`` is the
    value of ``aria-sort`` in the column that the list is sorted by."""

    label: str
    sort: str = ""
    direction: str = ""
    number: bool = False


def chosen_order(wanted: str) -> str:
    """``wanted`` when it is a known order, else the default: last changed first."""
    return wanted if wanted.removeprefix("-") in _FIELDS else DEFAULT


def columns(order: str) -> list[Column]:
    """The heads of a list in ``order``."""
    return [
        _column("Adapter", "name", order),
        _column("State", "state", order),
        Column("Live"),
        _column("Base model", "base", order),
        _column("Versions", "versions", order, number=True),
        _column("Size", "size", order, number=True),
        _column("Changed", "changed", order),
    ]


def ordered(rows: QuerySet[Adapter], order: str) -> QuerySet[Adapter]:
    """``rows`` in ``order``: what is unknown comes last, the newest first among equals."""
    down = order.startswith("-")
    terms = [_term(field, down=down) for field in _FIELDS[order.removeprefix("-")]]
    return rows.order_by(*terms, "-id")


def _column(label: str, key: str, order: str, *, number: bool = False) -> Column:
    if order.removeprefix("-") != key:
        return Column(label, f"{_FIRST[key]}{key}", number=number)
    down = order.startswith("-")
    return Column(label, key if down else f"-{key}", "descending" if down else "ascending", number)


def _term(field: str, *, down: bool) -> OrderBy:
    return F(field).desc(nulls_last=True) if down else F(field).asc(nulls_last=True)
