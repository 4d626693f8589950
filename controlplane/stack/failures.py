"""Why a stack does not start, in words for the person at the terminal."""

from __future__ import annotations


class StackError(Exception):
    """The stack cannot start or go on; the message says what to do."""


class AlreadyRunningError(StackError):
    """Another ``up`` holds this home."""


class BootFailedError(StackError):
    """A part did not become ready."""
