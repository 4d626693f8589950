"""The connection to NATS costs nothing while it cannot be had."""

from __future__ import annotations

import asyncio

import pytest
from nats.errors import Error

from fabric.connection import Connection, connect
from tests.servers import free_port


async def test_a_server_that_accepts_and_says_nothing_costs_no_sockets() -> None:
    closed = 0
    accepted = 0

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal closed, accepted
        accepted += 1
        await reader.read()
        closed += 1
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = Connection("test")
    with pytest.raises((Error, TimeoutError, OSError)):
        await client.connect(
            f"nats://127.0.0.1:{port}", connect_timeout=1, max_reconnect_attempts=3, reconnect_time_wait=0,
            allow_reconnect=False, error_cb=client.log_error, closed_cb=client.log_closed,
        )  # fmt: skip
    for _ in range(100):
        if closed == accepted:
            break
        await asyncio.sleep(0.02)
    await client.close()
    server.close()
    assert accepted >= 1
    assert closed == accepted


async def test_giving_up_leaves_nothing_behind() -> None:
    """With no server, with one that accepts and says nothing; unclosed sockets and tasks would be warnings here."""
    heard: list[bytes] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read())
        writer.close()

    before = asyncio.all_tasks()
    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for address in (f"nats://127.0.0.1:{free_port()}", f"nats://127.0.0.1:{port}"):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.4):
                await connect(address, name="test")
    server.close()
    await asyncio.sleep(0.1)
    assert heard == [b""]
    assert asyncio.all_tasks() == before
