"""Is a part ready? Each check returns ``None`` for yes, or the reason why not yet, for the person who waits."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import nats
import nats.errors
import redis
import redis.asyncio

from wire import subjects
from wire.codec import decode
from wire.jobs import Presence

_TIMEOUT_S = 3.0
_HEAD_BYTES = 64 * 1024


class Check(Protocol):
    """A readiness check; ``started_at`` is the child's start in seconds since the epoch."""

    async def __call__(self, started_at: float) -> str | None: ...


async def alive(started_at: float) -> str | None:
    """Ready as soon as it runs."""
    return None


@dataclass(frozen=True, slots=True)
class HttpOk:
    """``GET url`` on loopback answers 200."""

    url: str

    async def __call__(self, started_at: float) -> str | None:
        parts = urlsplit(self.url)
        request = (
            f"GET {parts.path} HTTP/1.1\r\nHost: {parts.hostname}:{parts.port}\r\n"
            "Connection: close\r\nAccept: application/json\r\n\r\n"
        )
        answer = await _ask(parts.hostname or "127.0.0.1", parts.port or 80, request.encode(), whole=True)
        if isinstance(answer, _Silence):
            return answer.reason
        head, _, body = answer.partition(b"\r\n\r\n")
        status = head.split(b" ", 2)[1:2]
        if status == [b"200"]:
            return None
        return f"{self.url} answers {b''.join(status).decode(errors='replace')}: {body[:300].decode(errors='replace')}"


@dataclass(frozen=True, slots=True)
class NatsReady:
    """A nats-server greets and has JetStream."""

    host: str
    port: int

    async def __call__(self, started_at: float) -> str | None:
        answer = await _ask(self.host, self.port, b"", whole=False)
        if isinstance(answer, _Silence):
            return answer.reason
        if not answer.startswith(b"INFO "):
            return f"port {self.port} is no NATS server: it says {answer[:40]!r}"
        with contextlib.suppress(ValueError):
            if json.loads(answer[5:]).get("jetstream"):
                return None
        return "the NATS server answers, but JetStream is off"


@dataclass(frozen=True, slots=True)
class RedisReady:
    """A Redis or Valkey answers ``PING``; a password is the caller's business, so ``NOAUTH`` counts as an answer."""

    host: str
    port: int

    async def __call__(self, started_at: float) -> str | None:
        answer = await _ask(self.host, self.port, b"PING\r\n", whole=False)
        if isinstance(answer, _Silence):
            return answer.reason
        if answer.startswith((b"+PONG", b"-NOAUTH")):
            return None
        return f"port {self.port} answers {answer[:80]!r} to PING"


@dataclass(frozen=True, slots=True)
class RedisKeyExists:
    """Somebody keeps ``key`` in Redis: the sign of life of a part that has no port."""

    url: str
    key: str

    async def __call__(self, started_at: float) -> str | None:
        try:
            async with redis.asyncio.Redis.from_url(self.url, socket_timeout=_TIMEOUT_S) as client:
                return None if await client.exists(self.key) else f"Redis holds no {self.key} yet"
        except (redis.RedisError, OSError) as error:
            return f"Redis: {error}"


@dataclass(frozen=True, slots=True)
class WorkerPresent:
    """A sidecar of ``machine`` says on NATS that at least ``workers`` live workers can serve a model."""

    nats_url: str
    machine: str
    workers: int

    async def __call__(self, started_at: float) -> str | None:
        try:
            async with asyncio.timeout(2 * _TIMEOUT_S):
                client = await nats.connect(self.nats_url, allow_reconnect=False, connect_timeout=2)
                try:
                    heard = await client.subscribe(subjects.presence(self.machine))
                    message = await heard.next_msg(timeout=_TIMEOUT_S)
                finally:
                    await client.close()
            presence = decode(message.data, Presence)
        except (OSError, TimeoutError, nats.errors.Error) as error:
            return f"no word of {self.machine} on NATS: {error or type(error).__name__}"
        if presence.workers < self.workers or not presence.models:
            return f"{presence.workers} of {self.workers} workers live, models: {', '.join(presence.models) or 'none'}"
        return None


@dataclass(frozen=True, slots=True)
class SocketAnswers:
    """Something accepts connections on a Unix socket."""

    path: Path

    async def __call__(self, started_at: float) -> str | None:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                _, writer = await asyncio.open_unix_connection(self.path)
        except (OSError, TimeoutError) as error:
            return f"socket {self.path}: {error}"
        writer.close()
        return None


@dataclass(frozen=True, slots=True)
class FileTouched:
    """A file was written since the child started."""

    path: Path

    async def __call__(self, started_at: float) -> str | None:
        with contextlib.suppress(OSError):
            # one second of grace: some file systems keep whole seconds
            if self.path.stat().st_mtime >= started_at - 1.0:
                return None
        return f"{self.path} is not written yet"


@dataclass(frozen=True, slots=True)
class CommandSucceeds:
    """A short program exits 0; its last line of output is the reason when it does not."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    timeout_s: float = 60.0

    async def __call__(self, started_at: float) -> str | None:
        process = await asyncio.create_subprocess_exec(
            *self.command,
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(self.timeout_s):
                output, _ = await process.communicate()
        except TimeoutError:
            return f"{self.command[-1]} did not end within {self.timeout_s:g} s"
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        lines = output.decode(errors="replace").strip().splitlines()
        return None if process.returncode == 0 else (lines[-1] if lines else f"exit status {process.returncode}")


@dataclass(frozen=True, slots=True)
class _Silence:
    reason: str


async def _ask(host: str, port: int, request: bytes, *, whole: bool) -> bytes | _Silence:
    """First piece of the answer, or all of it until the peer closes when ``whole``."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port, limit=_HEAD_BYTES)
            try:
                writer.write(request)
                await writer.drain()
                return await (reader.read(_HEAD_BYTES) if whole is False else _read_all(reader))
            finally:
                writer.close()
    except (OSError, TimeoutError) as error:
        return _Silence(f"{host}:{port}: {error or 'no answer'}")


async def _read_all(reader: asyncio.StreamReader) -> bytes:
    data = b""
    while len(data) < _HEAD_BYTES and (piece := await reader.read(_HEAD_BYTES)):
        data += piece
    return data
