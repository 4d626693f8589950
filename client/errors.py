"""What can go wrong between a client and Shoal."""

from __future__ import annotations


class ClientError(Exception):
    """Base of everything the client raises."""


class Unreachable(ClientError):
    """No answer: wrong address, no network, or the server is down."""


class ApiError(ClientError):
    """Shoal said no. ``code`` is stable; ``status`` is the HTTP status."""

    def __init__(self, *, status: int, code: str, message: str, hint: str | None = None) -> None:
        # the gateway ends its message with the hint, since OpenAI clients show nothing else
        shown = "" if not hint or message.endswith(hint) else f"\n{hint}"
        super().__init__(f"{message} [{code}]{shown}")
        self.status = status
        self.code = code
        self.message = message
        self.hint = hint


class NotSignedIn(ClientError):
    """No address or key was found."""
