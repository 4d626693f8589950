"""How a worker is named in addresses, Redis keys and messages."""

from __future__ import annotations

from wire.subjects import decode_token, encode_token


def worker_key(machine: str, worker: str) -> str:
    """``machine.worker`` with both parts encoded, as in the last two tokens of its telemetry subject."""
    return f"{encode_token(machine)}.{encode_token(worker)}"


def parse_worker_key(key: str) -> tuple[str, str] | None:
    """(machine, worker) of a key, or ``None`` when ``key`` is not one."""
    machine, dot, worker = key.partition(".")
    if not dot or not machine or not worker:
        return None
    try:
        names = decode_token(machine), decode_token(worker)
    except UnicodeDecodeError:
        return None
    return names if worker_key(*names) == key else None
