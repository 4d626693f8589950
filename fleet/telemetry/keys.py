"""Every Redis key of the fleet's live data, with what bounds it."""

from __future__ import annotations

from django.conf import settings

HISTORY_S = 900
HISTORY_EXPIRES_S = 2 * HISTORY_S
STATE_EXPIRES_S = 24 * 3600
LEADER_MS = 3000
USAGE_KEPT_S = 600
USAGE_EXPIRES_S = USAGE_KEPT_S + 120


def states() -> str:
    """Hash: worker key → MessagePack of WorkerState; bounded by the bridge's MAX_WORKERS."""
    return _key("states")


def machines() -> str:
    """Hash: machine → MessagePack of MachineState; bounded likewise."""
    return _key("machines")


def leader() -> str:
    """Name of the one of several bridges that sends to the group; expires after 3 s."""
    return _key("leader")


def history(worker: str) -> str:
    """Ring of one worker: hash of ``second % 900`` → MessagePack of Point. Writing a second twice changes
    nothing, so two bridges at once do no harm, and the ring can never hold more than 15 minutes."""
    return _key(f"history:{worker}")


def usage(minute: int) -> str:
    """Hash: gateway and time of a message → MessagePack of Usage, for the minute that starts at ``minute``; expires
    after twelve minutes."""
    return _key(f"usage:{minute}")


def _key(name: str) -> str:
    return f"{settings.SHOAL.redis_prefix}:fleet:{name}"
