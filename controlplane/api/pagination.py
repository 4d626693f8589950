"""Cursor pages: stable while rows are added, no count query."""

from __future__ import annotations

from rest_framework.pagination import CursorPagination


class NewestFirst(CursorPagination):
    """Newest rows first; ``?limit=`` up to 200."""

    page_size = 50
    page_size_query_param = "limit"
    max_page_size = 200
    ordering: str | tuple[str, ...] = "-id"
