"""Raw pull requests against a real server: sums stay exact, lost requests are noticed."""

from __future__ import annotations

import asyncio
import time

import pytest
from nats.aio.msg import Msg
from structlog.testing import capture_logs

from fabric.topology import QueueSettings, TopologyConflict
from sidecar import metrics
from sidecar.broker import link as link_module
from sidecar.broker.link import Link, Source
from sidecar.broker.pull import ConsumerPull
from tests.integration.sidecar.conftest import Bench, until


class Receiver:
    """A pull of model-a with what it delivered."""

    def __init__(self, bench: Bench) -> None:
        self.messages: list[Msg] = []
        self.link = Link(bench.connection, QueueSettings())
        self.pull = ConsumerPull(self.link, Source("default", "model-a"), self._take, lambda: None)

    def _take(self, msg: Msg, stream: str) -> None:
        assert stream == self.link.stream
        self.messages.append(msg)


async def open_receiver(bench: Bench) -> Receiver:
    receiver = Receiver(bench)
    await receiver.link.verify()
    return receiver


async def test_what_is_owed_is_exact_when_requests_overlap(bench: Bench) -> None:
    receiver = await open_receiver(bench)
    for jobs, expires_s in ((3, 1.0), (5, 4.0), (2, 1.5)):
        await receiver.pull.ask(jobs, expires_s)
    assert receiver.pull.outstanding == 10
    for _ in range(6):
        await bench.publish()
    await until(lambda: len(receiver.messages) == 6)
    assert receiver.pull.outstanding == 4
    # Two of the three requests expire with what the server still owes them; the third's part is all that is left.
    await asyncio.sleep(2.0)
    left = receiver.pull.outstanding
    assert 0 <= left <= 5
    for _ in range(6):
        await bench.publish()
    await asyncio.sleep(0.3)
    assert len(receiver.messages) == 6 + left
    assert receiver.pull.outstanding == 0
    await receiver.pull.close()


async def test_a_request_the_server_forgot_is_noticed_and_renewed(bench: Bench) -> None:
    """The server loses the interest of the inbox, so that nothing comes any more, not even a heartbeat."""
    receiver = await open_receiver(bench)
    renewed = metrics.PULLS_RENEWED.labels(reason="no heartbeat")
    before = renewed._value.get()
    await receiver.pull.ask(5, 60.0)
    subscription = receiver.pull._subscription
    assert subscription is not None
    await bench.connection._send_unsubscribe(subscription._id)
    await bench.connection.flush()
    await bench.publish()
    begun = time.monotonic()
    while not receiver.messages and time.monotonic() - begun < 20:
        await receiver.pull.check(stall_s=3.0)
        if not receiver.pull.outstanding:
            await receiver.pull.ask(5, 60.0)
        await asyncio.sleep(0.1)
    assert len(receiver.messages) == 1
    assert renewed._value.get() == before + 1
    await receiver.pull.close()


async def test_a_deleted_consumer_is_made_again(bench: Bench) -> None:
    socket = await bench.sidecar()
    await bench.worker(socket)
    await bench.answer(await bench.publish())
    await bench.js.delete_consumer("WORK", "default__model-a")
    assert (await bench.answer(await bench.publish(), 10)).outputs is not None


async def test_a_queue_with_other_settings_is_told_as_an_error_and_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble: Exception | None = TopologyConflict("storage is memory, wanted file")
    looked = 0

    async def ensure(*_: object) -> None:
        nonlocal looked
        looked += 1
        if trouble is not None:
            raise trouble

    monkeypatch.setattr(link_module, "ensure_streams", ensure)
    link = Link(bench.connection, QueueSettings())
    with capture_logs() as logs:
        stage = asyncio.create_task(link.run())
        link.doubt()
        await until(lambda: looked >= 3)
        trouble = TimeoutError("no answer")
        await until(lambda: looked >= 6)
        trouble = None
        await link.wait_ready()
        stage.cancel()
    assert [one["log_level"] for one in logs] == ["error", "warning"]
    assert "wanted file" in logs[0]["reason"]
    assert abs(link.clock.offset_s) < 5
    assert link.clock.offset_s != 0.0
