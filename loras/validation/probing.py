"""Asks the probe: the warm server where there is one, else a child started for the purpose."""

from __future__ import annotations

import socket
from pathlib import Path

import structlog

from loras.validation.limits import SandboxLimits
from loras.validation.sandbox import MAX_REPLY_BYTES, ChildEnding, run_child
from wire.codec import WireDecodeError, decode_json, encode_json
from wire.validation import ProbeEnding, ProbeReply, ProbeRequest

_LENGTH_BYTES = 4
# the server kills a probe at its own limit and says so; this is for a server that hangs itself
_GRACE_S = 5.0

log = structlog.get_logger(__name__)


class _Unreachable(Exception):
    """The warm server did not take the request, so that a child may take it instead."""


def probe(request: ProbeRequest, *, limits: SandboxLimits, server: Path | None) -> ProbeReply:
    """The probe's reply; never raises for what an adapter does."""
    if server is not None:
        try:
            return _ask_server(server, request, limits.timeout_s + _GRACE_S)
        except _Unreachable as error:
            log.warning("probe server not reachable, starting a child instead", socket=str(server), reason=str(error))
    result = run_child("workers.probe", limits.arguments(), encode_json(request), timeout_s=limits.timeout_s)
    if result.ending is not ChildEnding.ANSWERED:
        log.error("probe without a verdict", adapter=request.digest, ending=result.ending, reason=result.reason)
        timed_out = result.ending is ChildEnding.TIMED_OUT
        return ProbeReply(rows=[], ending=ProbeEnding.TIMED_OUT if timed_out else ProbeEnding.CRASHED)
    return _decoded(result.reply)


def _ask_server(server: Path, request: ProbeRequest, timeout_s: float) -> ProbeReply:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(str(server))
            body = encode_json(request)
            connection.sendall(len(body).to_bytes(_LENGTH_BYTES, "big") + body)
        except OSError as error:
            raise _Unreachable(str(error)) from error
        try:
            length = int.from_bytes(_exactly(connection, _LENGTH_BYTES), "big")
            if length > MAX_REPLY_BYTES:
                raise OSError(f"the probe server announced a reply of {length} bytes")
            return _decoded(_exactly(connection, length))
        except TimeoutError:
            log.exception("probe server gave no answer", socket=str(server), adapter=request.digest)
            return ProbeReply(rows=[], ending=ProbeEnding.TIMED_OUT)
        except OSError:
            log.exception("probe server broke off", socket=str(server), adapter=request.digest)
            return ProbeReply(rows=[], ending=ProbeEnding.CRASHED)


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = connection.recv(min(size, 1 << 16))
        if not part:
            raise OSError("the probe server closed the connection")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _decoded(data: bytes) -> ProbeReply:
    try:
        return decode_json(data, ProbeReply)
    except WireDecodeError:
        log.exception("unreadable reply of a probe")
        return ProbeReply(rows=[], ending=ProbeEnding.CRASHED)
