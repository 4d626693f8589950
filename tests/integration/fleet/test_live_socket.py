"""From a sample on NATS to a message in a browser: bridge process, Valkey, web process, real socket."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import msgspec
import pytest
import websockets.asyncio.client as websockets
from websockets.exceptions import ConnectionClosed
from websockets.typing import Origin

from fleet import payloads
from tests.integration.fleet.site import Feed, Site, feeding
from tests.unit.fleet.samples import MODEL, resident, telemetry
from wire.telemetry import ResidentModel, Telemetry

decoder = msgspec.json.Decoder(payloads.Message)


class RichFeed(Feed):
    """Both teams' adapters are resident; the worker tells both names."""

    def sample(self, worker: str) -> Telemetry:
        return telemetry(
            worker=worker,
            at=time.time(),
            requests=self.sent,
            models=[ResidentModel(MODEL, "m" * 64, 1000, True, 128, 2)],
            adapters=[
                resident("a" * 64, slot=0, hits=self.sent, version="own/titles@3"),
                resident("b" * 64, slot=1, version="other/titles@3"),
            ],
        )


async def receive(socket: websockets.ClientConnection, *, timeout_s: float = 15.0) -> payloads.Message:
    """The next message, decoded by the published contract."""
    async with asyncio.timeout(timeout_s):
        return decoder.decode(await socket.recv())


async def receive_worker(
    socket: websockets.ClientConnection, *, worker: str = "box.cpu", timeout_s: float = 30.0
) -> payloads.Worker:
    """``worker`` in the next message that has it."""
    async with asyncio.timeout(timeout_s):
        while True:
            message = await receive(socket, timeout_s=timeout_s)
            if isinstance(message, payloads.Heartbeat):
                continue
            found = next((item for item in message.workers if item.id == worker), None)
            if found is not None:
                return found


async def test_snapshot_then_deltas_with_only_the_viewers_names(site: Site) -> None:
    async with feeding(RichFeed(site.env["NATS_URL"])), site.connect() as first:
        await receive_worker(first)
        # a second viewer comes when there is history already
        await asyncio.sleep(2)
        async with site.connect() as socket:
            snapshot = await receive(socket)
            assert isinstance(snapshot, payloads.Snapshot)
            (worker,) = [item for item in snapshot.workers if item.id == "box.cpu"]
            names = {adapter.digest[0]: adapter.version for adapter in worker.adapters or []}
            assert names == {"a": "own/titles@3", "b": None}
            history = snapshot.history["box.cpu"]
            assert len(history.at) >= 2
            assert history.at == sorted(set(history.at))
            assert history.utilization == [None] * len(history.at)
            seen = [worker.figures.requests_per_s]
            while len(seen) < 4:
                delta = await receive_worker(socket)
                assert "other/titles" not in json.dumps(msgspec.to_builtins(delta))
                seen.append(delta.figures.requests_per_s)
            assert seen == sorted(seen)
            assert seen[-1] > seen[0]


async def test_unknown_stays_null_to_the_browser(site: Site) -> None:
    async with feeding(Feed(site.env["NATS_URL"], workers=("blind",))), site.connect() as socket:
        await receive_worker(socket, worker="box.blind")
        while True:
            async with asyncio.timeout(20):
                raw: dict[str, Any] = json.loads(await socket.recv())
            workers = [item for item in raw.get("workers", []) if item["id"] == "box.blind"]
            if workers:
                break
        figures = workers[0]["figures"]
        unknown = ("utilization", "memory_used_bytes", "process_bytes", "reserved_bytes", "power_watts",
                   "temperature_c", "batch_rows", "batch_adapters", "queue_p50_ms", "queue_p95_ms")  # fmt: skip
        assert {name: figures[name] for name in unknown} == dict.fromkeys(unknown)
        assert figures["busy"] == 0.5


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer shoal_wrong"}], ids=["nobody", "wrong key"])
async def test_nobody_is_told_to_sign_in(site: Site, headers: dict[str, str]) -> None:
    async with websockets.connect(site.socket_url, additional_headers=headers, origin=Origin(site.url)) as socket:
        with pytest.raises(ConnectionClosed) as closed:
            async with asyncio.timeout(15):
                await socket.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4401


async def test_heartbeats_while_nothing_happens_and_the_last_word_ages(site: Site) -> None:
    async with feeding(Feed(site.env["NATS_URL"], workers=("brief",))), site.connect() as socket:
        await receive_worker(socket, worker="box.brief")
    async with site.connect() as socket:
        beats = 0
        async with asyncio.timeout(40):
            while beats < 3:
                message = await receive(socket)
                beats = beats + 1 if isinstance(message, payloads.Heartbeat) else 0
    async with site.connect() as socket:
        snapshot = await receive(socket)
    assert isinstance(snapshot, payloads.Snapshot)
    (worker,) = [item for item in snapshot.workers if item.id == "box.brief"]
    # three heartbeats are six seconds of silence: the page's own arithmetic calls it stale
    assert snapshot.at - worker.last_seen > 5.0


async def test_fifty_sockets_come_back_after_web_was_killed(site: Site) -> None:
    async with feeding(Feed(site.env["NATS_URL"])):
        sockets = [await site.connect().__aenter__() for _ in range(50)]
        try:
            for socket in sockets:
                assert isinstance(await receive(socket), payloads.Snapshot)
            await asyncio.to_thread(site.web.restart)
            await asyncio.to_thread(site.wait_ready)
        finally:
            await asyncio.gather(*(socket.close() for socket in sockets), return_exceptions=True)

        async def come_back() -> int:
            async with site.connect() as socket:
                snapshot = await receive(socket, timeout_s=30)
                assert isinstance(snapshot, payloads.Snapshot)
                assert [item.id for item in snapshot.workers if item.id == "box.cpu"]
                before = await receive_worker(socket)
                after = await receive_worker(socket)
                assert after.figures.at >= before.figures.at
                return len(snapshot.history["box.cpu"].at)

        lengths = await asyncio.gather(*(come_back() for _ in range(50)))
        assert len(lengths) == 50
        assert min(lengths) > 0
