"""What the gateway tells of ended requests, and who may read its metrics."""

from __future__ import annotations

from collections import Counter

from nats.aio.msg import Msg
from pydantic import SecretStr
from starlette.requests import Request

from gateway.app import refuse_metrics
from tests.integration.gateway.stand import BASE, CHAT, Stand, answer_to
from tests.integration.gateway.waiting import until
from wire import codec
from wire.errors import Code, ErrorInfo
from wire.jobs import Job, Result
from wire.subjects import USAGE_ALL
from wire.usage import TargetUsage, Usage


async def test_usage_tells_targets_aliases_failures_and_keys(stand: Stand) -> None:
    told: list[Usage] = []

    async def take(msg: Msg) -> None:
        told.append(codec.decode(msg.data, Usage))

    def respond(job: Job, inputs: object) -> list[Result]:
        if job.adapter_digest == "2" * 64:
            return [Result(job=job.id, error=ErrorInfo(Code.NONFINITE_OUTPUT, "Not a number."))]
        return answer_to(job, inputs)  # type: ignore[arg-type]

    await stand.connection.subscribe(USAGE_ALL, cb=take)
    await stand.connection.flush()
    stand.consumer.respond = respond
    for _ in range(3):
        assert (await stand.embed(model="acme/support")).status_code == 200
    assert (await stand.embed(model="acme/support@3")).status_code == 200
    assert (await stand.embed(model="acme/support@2")).status_code == 500
    assert (await stand.embed(model="acme/support@3", dimensions=7)).status_code == 400
    assert (await stand.embed(model="no/such")).status_code == 404
    body = {"model": CHAT, "prompt": "a b c", "stream": True}
    assert "[DONE]" in (await stand.client.post("/v1/completions", json=body)).text

    def sums() -> dict[tuple[str, str | None], TargetUsage]:
        return {(each.target, each.alias): each for usage in told for each in usage.targets}

    def total() -> int:
        return sum(each.requests for usage in told for each in usage.targets)

    await until(lambda: total() == 7)
    rows = [each for usage in told for each in usage.targets]
    requests: Counter[tuple[str, str | None]] = Counter()
    for row in rows:
        requests[row.target, row.alias] += row.requests
    assert requests == {
        ("acme/support@3", "live"): 3,
        ("acme/support@3", None): 2,
        ("acme/support@2", None): 1,
        (CHAT, None): 1,
    }
    assert sum(row.refused for row in rows) == 1
    assert [row.failed for row in rows if row.failed] == [{"nonfinite_output": 1}]
    assert sum(sum(row.latency) for row in rows) == 5
    assert all(row.team == "acme" for row in rows)
    assert sum(row.tokens for row in rows if row.target == CHAT) == 10
    assert sum(row.latency_sum_ms for row in rows) > 0
    assert {key for usage in told for key in usage.keys} == {"k1"}
    assert {usage.gateway for usage in told} == {stand.gateway.id}
    assert BASE not in {row.target for row in rows}


def asked(host: str, authorization: str | None = None) -> Request:
    headers = [] if authorization is None else [(b"authorization", authorization.encode())]
    return Request({"type": "http", "headers": headers, "client": (host, 5)})


def test_metrics_are_for_this_machine_or_for_who_has_the_key() -> None:
    key = SecretStr("scrape")
    assert refuse_metrics(asked("127.0.0.1"), None) is None
    refusal = refuse_metrics(asked("10.0.0.9"), None)
    assert refusal is not None
    assert refusal.code is Code.FORBIDDEN
    assert "SHOAL_METRICS_KEY" in (refusal.hint or "")
    assert refuse_metrics(asked("10.0.0.9", "Bearer scrape"), key) is None
    for wrong in (None, "Bearer other", "scrape", "Bearer scräpe"):
        refusal = refuse_metrics(asked("127.0.0.1", wrong), key)
        assert refusal is not None, wrong
        assert refusal.code is Code.UNAUTHENTICATED
