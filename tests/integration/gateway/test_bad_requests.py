"""What a wrong request gets: a 4xx with code and hint, and nothing in the queue."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from urllib.parse import urlsplit

import msgspec
import pytest

from tests.integration.gateway.stand import BASE, SECRET, Stand, running_stand
from tests.integration.gateway.waiting import until
from wire.registry import KeyRecord, Scope

GOOD = {"model": BASE, "input": "hello"}

BODIES: list[tuple[str, bytes, int, str, str | None]] = [
    ("empty body", b"", 400, "invalid_json", None),
    ("malformed", b'{"model": "x", "input": ', 400, "invalid_json", None),
    ("not an object", b"[1, 2]", 400, "invalid_request", None),
    ("not a number", b'{"model": "x", "input": "y", "dimensions": NaN}', 400, "invalid_json", None),
    ("not UTF-8", b'{"model": "x", "input": "\xff\xfe"}', 400, "invalid_json", None),
    ("not UTF-8 in an ignored field", b'{"model": "x", "input": "y", "store": "\xff"}', 400, "invalid_json", None),
    ("lone surrogate", b'{"model": "x", "input": "\\ud800"}', 400, "invalid_json", None),
    ("nested", b'{"model": "x", "input": "y", "metadata": ' + b"[" * 100_000, 400, "invalid_json", None),
    ("twice", b'{"model": "x", "model": "y", "input": "z"}', 400, "invalid_json", "model"),
    ("unknown", b'{"model": "x", "input": "y", "inputs": "z"}', 400, "unsupported_parameter", "inputs"),
    ("prompt", b'{"model": "x", "input": "y", "prompt_name": ""}', 400, "invalid_request", "prompt_name"),
    ("input type", b'{"model": "x", "input": "y", "input_type": "z"}', 400, "invalid_request", "input_type"),
    ("no input", b'{"model": "x"}', 400, "invalid_request", "input"),
    ("no model", b'{"input": "x"}', 400, "invalid_request", "model"),
    ("empty model", b'{"model": "", "input": "x"}', 400, "invalid_request", "model"),
    ("model is a number", b'{"model": 1, "input": "x"}', 400, "invalid_request", "model"),
    ("input is null", b'{"model": "x", "input": null}', 400, "invalid_request", "input"),
    ("input is an object", b'{"model": "x", "input": {"a": 1}}', 400, "invalid_request", "input"),
    ("input holds a float", b'{"model": "x", "input": ["a", 1.5]}', 400, "invalid_request", "input[1]"),
    ("tokens", b'{"model": "x", "input": [1, 2, 3]}', 400, "unsupported_parameter", "input"),
    ("token lists", b'{"model": "x", "input": [[1, 2], [3]]}', 400, "unsupported_parameter", "input"),
    ("dimensions", json.dumps({**GOOD, "dimensions": 8}).encode(), 400, "unsupported_parameter", "dimensions"),
    ("format", b'{"model": "x", "input": "y", "encoding_format": "hex"}', 400, "invalid_request", "encoding_format"),
    ("truncate", b'{"model": "x", "input": "y", "truncate": "no"}', 400, "invalid_request", "truncate"),
    ("user", b'{"model": "x", "input": "y", "user": 5}', 400, "invalid_request", "user"),
    ("empty list", b'{"model": "x", "input": []}', 400, "input_empty", "input"),
    ("empty string", b'{"model": "x", "input": ""}', 400, "input_empty", "input"),
    ("empty string in a list", b'{"model": "x", "input": ["a", ""]}', 400, "input_empty", "input[1]"),
    ("10,000 inputs", json.dumps({**GOOD, "input": ["x"] * 10_000}).encode(), 400, "too_many_inputs", "input"),
    ("300 KB text", json.dumps({**GOOD, "input": ["x", "x" * 300_000]}).encode(), 400, "input_too_long", "input[1]"),
    ("3 MB text", json.dumps({**GOOD, "input": "x" * 3_000_000}).encode(), 413, "payload_too_large", None),
    ("unknown model", b'{"model": "no/such", "input": "x"}', 404, "model_not_found", "model"),
    ("unknown version", b'{"model": "acme/support@7", "input": "x"}', 404, "version_not_found", "model"),
    ("unknown alias", b'{"model": "acme/support:beta", "input": "x"}', 404, "alias_not_found", "model"),
    ("alias to nothing", b'{"model": "acme/support:lost", "input": "x"}', 404, "version_not_found", "model"),
    ("not a name", b'{"model": "Acme/Support", "input": "x"}', 404, "model_not_found", "model"),
]


async def test_bad_bodies_are_refused_and_never_queued(stand: Stand) -> None:
    stand.consumer.paused = True
    await asyncio.sleep(0.5)
    for what, body, status, code, param in BODIES:
        answer = await stand.client.post("/v1/embeddings", content=body)
        assert answer.status_code == status, (what, answer.text)
        error = answer.json()["error"]
        assert error["code"] == code, (what, error)
        assert error["param"] == param, (what, error)
        assert len(error["message"]) > 10, what
        assert error["type"], what
        assert answer.headers["x-request-id"], what
    assert "10000" in (await stand.embed(input=["x"] * 10_000)).json()["error"]["message"]
    assert await stand.waiting_messages() == 0
    assert stand.consumer.jobs == []


async def test_body_without_length_is_bounded_while_it_streams(stand: Stand) -> None:
    sent = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(64):
            sent += 1
            yield b"x" * 65536

    answer = await stand.client.post("/v1/embeddings", content=chunks())
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "payload_too_large"
    assert sent == 64
    assert (await stand.embed()).status_code == 200


async def test_endless_body_is_cut_off(stand: Stand) -> None:
    address = urlsplit(stand.url)
    _, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write((HEAD + "transfer-encoding: chunked\r\n\r\n").encode())
    sent = 0
    with suppress(ConnectionError):
        while sent < 200:
            writer.write(b"80000\r\n" + b"x" * 0x80000 + b"\r\n")
            await writer.drain()
            sent += 1
    assert sent < 100
    writer.close()


async def raw(stand: Stand, head: str, body: bytes, *, end: bool) -> bytes:
    """Send bytes as they are, close the sending side if ``end``, and read to the end."""
    address = urlsplit(stand.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(head.encode() + body)
    await writer.drain()
    if end:
        writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    return answer


HEAD = (
    f"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nauthorization: Bearer {SECRET}\r\n"
)


async def test_body_that_ends_early(nats_url: str) -> None:
    async with running_stand(nats_url, body_timeout_s=0.5) as stand:
        for end, what in ((True, "ended early"), (False, "stopped for 0.5 s")):
            answer = await raw(stand, HEAD + "content-length: 100\r\n\r\n", b'{"model": "x"', end=end)
            assert answer.startswith(b"HTTP/1.1 400 "), answer
            error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
            assert error["code"] == "client_closed"
            assert what in error["message"]
            assert "13 of 100 bytes" in error["message"]
        chunked = await raw(stand, HEAD + "transfer-encoding: chunked\r\n\r\n", b'5\r\n{"mod\r\n', end=True)
        assert b"client_closed" in chunked
        assert stand.gateway.limits.in_flight == 0
        assert await stand.waiting_messages() == 0


async def test_declared_length_is_refused_before_the_body_travels(stand: Stand) -> None:
    answer = await raw(stand, HEAD + "content-length: 999999999999\r\nexpect: 100-continue\r\n\r\n", b"", end=False)
    assert answer.startswith(b"HTTP/1.1 413 "), answer


KEYS = [
    ({}, 401, "invalid_api_key"),
    ({"authorization": "Bearer shoal_wrong"}, 401, "invalid_api_key"),
    ({"authorization": "Basic abc"}, 401, "invalid_api_key"),
    ({"authorization": "Bearer"}, 401, "invalid_api_key"),
    ({"authorization": "Bearer expired"}, 401, "invalid_api_key"),
    ({"authorization": "Bearer reader"}, 403, "insufficient_scope"),
    ({"authorization": "Bearer machine"}, 403, "insufficient_scope"),
    ({"authorization": "Bearer admin"}, 200, ""),
]


async def test_keys(stand: Stand) -> None:
    await stand.put_key("expired", KeyRecord(id="e", team="acme", scopes=[Scope.INFER], expires=time.time() - 1))
    await stand.put_key("reader", KeyRecord(id="r", team="acme", scopes=[Scope.READ]))
    await stand.put_key("machine", KeyRecord(id="m", team="acme", scopes=[Scope.MACHINE]))
    await stand.put_key("admin", KeyRecord(id="a", team="acme", scopes=[Scope.ADMIN]))
    del stand.client.headers["authorization"]
    for headers, status, code in KEYS:
        answer = await stand.client.post("/v1/embeddings", json=GOOD, headers=headers)
        assert answer.status_code == status, (headers, answer.text)
        if code:
            assert answer.json()["error"]["code"] == code
    assert len(stand.consumer.jobs) == 1


async def test_key_limits(stand: Stand) -> None:
    record = KeyRecord(id="l", team="acme", scopes=[Scope.INFER], requests_per_minute=3)
    await stand.put_key("limited", record)
    headers = {"authorization": "Bearer limited"}
    answers = [await stand.client.post("/v1/embeddings", json=GOOD, headers=headers) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[-1].json()["error"]["code"] == "rate_limited"
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 20

    await stand.put_key("narrow", msgspec.structs.replace(record, id="n", requests_per_minute=None, max_in_flight=1))
    stand.consumer.respond = lambda job, inputs: []
    headers = {"authorization": "Bearer narrow", "x-shoal-timeout-ms": "1500"}
    first = asyncio.create_task(stand.client.post("/v1/embeddings", json=GOOD, headers=headers))
    await until(lambda: stand.gateway.limits.in_flight == 1)
    second = await stand.client.post("/v1/embeddings", json=GOOD, headers=headers)
    assert second.status_code == 429
    assert (await first).status_code == 504


async def test_key_limits_hold_under_load(stand: Stand) -> None:
    both = KeyRecord(id="b", team="acme", scopes=[Scope.INFER], requests_per_minute=40, max_in_flight=5)
    await stand.put_key("both", both)
    headers = {"authorization": "Bearer both"}
    at_once: list[int] = []

    async def ask() -> tuple[int, str]:
        answer = await stand.client.post("/v1/embeddings", json=GOOD, headers=headers)
        at_once.append(stand.gateway.limits._keys["b"].in_flight)
        return answer.status_code, "" if answer.status_code == 200 else answer.json()["error"]["message"]

    answers = [answer for _ in range(20) for answer in await asyncio.gather(*(ask() for _ in range(12)))]
    assert sum(status == 200 for status, _ in answers) == 40
    refusals = {message for status, message in answers if status == 429}
    assert any("40 requests a minute" in message for message in refusals)
    assert any("5 requests in flight" in message for message in refusals)
    assert {status for status, _ in answers} == {200, 429}
    assert max(at_once) <= 5
    assert stand.gateway.limits._keys["b"].in_flight == 0
    assert (await stand.embed()).status_code == 200


async def test_bytes_in_flight_are_bounded(nats_url: str) -> None:
    async with running_stand(nats_url, max_in_flight_bytes=100_000) as stand:
        stand.consumer.respond = lambda job, inputs: []
        stand.client.headers["x-shoal-timeout-ms"] = "1000"
        answers = await asyncio.gather(*(stand.embed(input="x" * 40_000) for _ in range(4)))
        assert sorted(answer.status_code for answer in answers) == [429, 429, 504, 504]
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert "100000" in refused.json()["error"]["message"]
        assert refused.headers["retry-after"]
        assert stand.gateway.limits.held_bytes == 0


async def test_limit_of_the_gateway_itself(nats_url: str) -> None:
    async with running_stand(nats_url, max_in_flight=2) as stand:
        stand.consumer.respond = lambda job, inputs: []
        stand.client.headers["x-shoal-timeout-ms"] = "1000"
        answers = await asyncio.gather(*(stand.embed() for _ in range(5)))
        assert sorted(answer.status_code for answer in answers) == [429, 429, 429, 504, 504]


@pytest.mark.parametrize("given", ["0", "300001", "-1", "1.5", "soon", "²"])
async def test_bad_timeout_header(stand: Stand, given: str) -> None:
    headers = [(b"x-shoal-timeout-ms", given.encode("latin-1"))]
    answer = await stand.client.post("/v1/embeddings", json=GOOD, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "x-shoal-timeout-ms"


async def test_unknown_paths_and_methods(stand: Stand) -> None:
    for path in ("/v1/chat", "/v1/images", "/", "/v2"):
        answer = await stand.client.post(path, json={})
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "not_found"
        assert "/v1/embeddings" in answer.json()["error"]["message"]
    for method, path in (("GET", "/v1/embeddings"), ("POST", "/v1/models"), ("POST", "/healthz")):
        answer = await stand.client.request(method, path)
        assert answer.status_code == 405
        assert answer.json()["error"]["code"] == "method_not_allowed"
