"""Chat and completions: OpenAI's shapes, streams, and what breaks them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest
from openai import APIError, AsyncOpenAI, BadRequestError
from openai.types.chat import ChatCompletionMessageParam

from tests.integration.gateway.stand import CHAT, CHAT_RECORD, SECRET, Stand, answer_to, running_stand, text_parts
from tests.integration.gateway.waiting import until
from wire import codec
from wire.errors import Code, ErrorInfo
from wire.jobs import GenerateInputs, GenerateOutputs, Job, Message, Result, Sampling

ASK: list[ChatCompletionMessageParam] = [{"role": "user", "content": "tell me more"}]
LONG = " ".join(f"word{number}" for number in range(40))


@pytest.fixture
async def openai(stand: Stand) -> AsyncIterator[AsyncOpenAI]:
    """The official client, as people use it."""
    async with AsyncOpenAI(base_url=f"{stand.url}/v1", api_key=SECRET, max_retries=0) as client:
        yield client


async def events(answer: httpx.Response) -> list[str]:
    """Data of all events of a stream."""
    return [line.removeprefix("data: ") async for line in answer.aiter_lines() if line]


async def test_whole_answers_of_the_official_client(stand: Stand, openai: AsyncOpenAI) -> None:
    raw = await openai.chat.completions.with_raw_response.create(
        model=CHAT, messages=ASK, logprobs=True, top_logprobs=1
    )
    answer = raw.parse()
    choice = answer.choices[0]
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", "tell me more", "stop")
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert choice.logprobs.content[0].top_logprobs[0].bytes == list(b"tell me more")
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (7, 3, 10)
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 2
    assert answer.system_fingerprint == f"shoal_{CHAT_RECORD.digest[:12]}"
    assert raw.headers["x-shoal-version"] == CHAT
    assert raw.headers["x-shoal-queue-ms"] == "1.5"
    old = await openai.completions.create(model=CHAT, prompt="once upon", logprobs=1)
    assert (old.choices[0].text, old.choices[0].finish_reason) == ("once upon", "stop")
    assert old.choices[0].logprobs is not None
    assert old.choices[0].logprobs.text_offset == [0]


async def test_streams_of_the_official_client(openai: AsyncOpenAI) -> None:
    stream = await openai.chat.completions.create(
        model=CHAT,
        messages=ASK,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    deltas = [chunk.choices[0].delta for chunk in chunks[:-1]]
    assert [delta.content for delta in deltas] == ["tell", " me", " more"]
    assert [delta.role for delta in deltas] == ["assistant", None, None]
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None, None, "stop"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 10
    assert len({chunk.id for chunk in chunks}) == 1
    old = await openai.completions.create(model=CHAT, prompt="once upon", stream=True, logprobs=0)
    offsets = [chunk.choices[0].logprobs.text_offset async for chunk in old]  # type: ignore[union-attr]
    assert offsets == [[0], [4]]


async def test_all_sampling_parameters_reach_the_worker(stand: Stand) -> None:
    answer = await stand.post(
        "chat/completions",
        model=CHAT,
        messages=[
            {"role": "developer", "content": "Be brief."},
            {"role": "assistant", "content": "Yes?", "refusal": None, "annotations": [], "tool_calls": []},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": "ann"},
        ],
        max_completion_tokens=9,
        max_tokens=5,
        temperature=0,
        top_p=0.5,
        top_k=4,
        seed=11,
        stop="END",
        presence_penalty=1,
        frequency_penalty=-1,
        logprobs=True,
        top_logprobs=3,
        ignore_eos=True,
        n=1,
        response_format={"type": "text"},
        logit_bias={},
        tools=[],
        metadata={"a": 1},
        parallel_tool_calls=True,
    )
    assert answer.status_code == 200, answer.text
    job = stand.consumer.jobs[-1]
    assert job.inputs == GenerateInputs(
        messages=[Message("system", "Be brief."), Message("assistant", "Yes?"), Message("user", "a\nb", "ann")],
        sampling=Sampling(9, 0.0, 0.5, 4, 11, ["END"], 3, 1.0, -1.0, ignore_eos=True),
    )
    assert job.token_estimate == len("Be brief.Yes?a\nb") // 4 + 2 + 9
    assert job.deadline - job.published > 250


async def test_client_that_leaves_a_stream_cancels_its_job(stand: Stand) -> None:
    stand.consumer.respond = lambda job, inputs: answer_to(job, inputs)[:2]
    address = urlsplit(stand.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    body = json.dumps({"model": CHAT, "messages": ASK, "stream": True}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {SECRET}\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    assert b"text/event-stream" in await reader.readuntil(b"\r\n\r\n")
    assert b'"content":"tell"' in await reader.readuntil(b"\n\n")
    writer.close()
    await until(lambda: stand.consumer.cancelled == [stand.consumer.jobs[0].id])
    await until(lambda: stand.gateway.limits.in_flight == 0)
    assert stand.gateway.plane().queue._waiters == {}
    assert stand.gateway.limits.held_bytes == 0


async def test_stream_goes_on_when_its_worker_dies(stand: Stand, openai: AsyncOpenAI) -> None:
    """The next worker starts at the beginning, and cuts the same text into other parts."""

    def lost_and_again(job: Job, inputs: GenerateInputs) -> list[Result]:
        parts = text_parts(job, inputs)
        again = [msgspec.structs.replace(part, worker="second") for part in parts]
        first, second = (part.outputs for part in again[:2])
        assert isinstance(first, GenerateOutputs)
        assert isinstance(second, GenerateOutputs)
        joined = msgspec.structs.replace(again[0], outputs=GenerateOutputs(text=first.text + second.text))
        rest = [msgspec.structs.replace(part, number=number) for number, part in enumerate(again[2:], 1)]
        return [*parts[:20], joined, *rest]

    stand.consumer.respond = lost_and_again
    stream = await openai.chat.completions.create(
        model=CHAT,
        messages=[{"role": "user", "content": LONG}],
        stream=True,
    )
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == LONG


def other_text(job: Job, inputs: GenerateInputs) -> list[Result]:
    """The second worker comes to another text."""
    other = msgspec.structs.replace(inputs, prompt="something else", messages=[])
    again = [msgspec.structs.replace(part, worker="second") for part in text_parts(job, other)]
    return [*text_parts(job, inputs)[:2], *again]


def lost_part(job: Job, inputs: GenerateInputs) -> list[Result]:
    """A part never arrives."""
    parts = text_parts(job, inputs)
    return [parts[0], parts[2]]


def failed(job: Job, inputs: GenerateInputs) -> list[Result]:
    """The job fails in the middle."""
    error = ErrorInfo(Code.OUT_OF_MEMORY, "No room.", hint="Try again.")
    return [text_parts(job, inputs)[0], Result(job=job.id, error=error)]


def stopped(job: Job, inputs: GenerateInputs) -> list[Result]:
    """Nothing comes any more."""
    return text_parts(job, inputs)[:1]


@pytest.mark.parametrize(
    ("respond", "code", "words"),
    [
        (other_text, "internal_error", "another text"),
        (lost_part, "internal_error", "number 1"),
        (failed, "out_of_memory", "No room"),
        (stopped, "deadline_exceeded", "0.5 s"),
    ],
)
async def test_a_stream_that_cannot_go_on_says_so(nats_url: str, respond: object, code: str, words: str) -> None:
    async with running_stand(nats_url, stream_idle_s=0.5) as stand:
        stand.consumer.respond = respond  # type: ignore[assignment]
        body = {"model": CHAT, "messages": ASK, "stream": True}
        async with stand.client.stream("POST", "/v1/chat/completions", json=body) as answer:
            assert answer.status_code == 200
            *_, last = await events(answer)
        assert json.loads(last)["error"]["code"] == code
        assert words in json.loads(last)["error"]["message"]
        async with AsyncOpenAI(base_url=f"{stand.url}/v1", api_key=SECRET, max_retries=0) as client:
            stream = await client.chat.completions.create(model=CHAT, messages=ASK, stream=True)
            with pytest.raises(APIError, match=words):
                _ = [chunk async for chunk in stream]
        # A final result needs no cancellation; anything else is nobody's any more.
        await until(lambda: stand.gateway.plane().queue._waiters == {})


async def test_failures_before_the_first_part_keep_their_status(stand: Stand, openai: AsyncOpenAI) -> None:
    error = ErrorInfo(Code.INPUT_TOO_LONG, "The prompt has 9000 tokens; the limit is 2048.")
    stand.consumer.respond = lambda job, inputs: [Result(job=job.id, error=error)]
    with pytest.raises(BadRequestError, match="9000 tokens") as caught:
        await openai.chat.completions.create(model=CHAT, messages=ASK, stream=True)
    assert caught.value.code == "input_too_long"


async def test_second_complete_answer_of_a_stream_is_dropped(stand: Stand) -> None:
    def twice(job: Job, inputs: GenerateInputs) -> list[Result]:
        return [*text_parts(job, inputs), *text_parts(job, inputs)]

    stand.consumer.respond = twice
    body = {"model": CHAT, "prompt": "a b", "stream": True}
    async with stand.client.stream("POST", "/v1/completions", json=body) as answer:
        got = await events(answer)
    assert [json.loads(event)["choices"][0]["text"] for event in got[:-1]] == ["a", " b"]
    assert got[-1] == "[DONE]"


CHAT_BODIES: list[tuple[str, dict[str, object], str, str | None]] = [
    ("no messages", {"messages": []}, "input_empty", "messages"),
    ("no text", {"messages": [{"role": "user", "content": ""}]}, "input_empty", "messages"),
    ("no content", {"messages": [{"role": "user"}]}, "invalid_request", "messages[0].content"),
    ("role", {"messages": [{"role": "tool", "content": "x"}]}, "unsupported_parameter", "messages[0].role"),
    ("tool call", {"messages": [{"role": "assistant", "content": "x", "tool_calls": [1]}]}, "unsupported_parameter",
     "messages[0].tool_calls"),
    ("image", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "unsupported_parameter",
     "messages[0].content[0].type"),
    ("content number", {"messages": [{"role": "user", "content": 5}]}, "invalid_request", "messages[0].content"),
    ("too long", {"messages": [{"role": "user", "content": "x" * 200_000}] * 2}, "input_too_long", "messages"),
    ("many", {"messages": [{"role": "user", "content": "x"}] * 2049}, "too_many_inputs", "messages"),
    ("tools", {"tools": [{"type": "function"}]}, "unsupported_parameter", "tools"),
    ("functions", {"functions": [{"name": "f"}]}, "unsupported_parameter", "functions"),
    ("json", {"response_format": {"type": "json_object"}}, "unsupported_parameter", "response_format"),
    ("two", {"n": 2}, "unsupported_parameter", "n"),
    ("true is not one", {"n": True}, "unsupported_parameter", "n"),
    ("bias", {"logit_bias": {"5": 1}}, "unsupported_parameter", "logit_bias"),
    ("audio", {"modalities": ["audio"]}, "unsupported_parameter", "modalities"),
    ("unknown", {"max_token": 5}, "unsupported_parameter", "max_token"),
    ("hot", {"temperature": 2.5}, "invalid_request", "temperature"),
    ("top_p", {"top_p": -0.1}, "invalid_request", "top_p"),
    ("no tokens", {"max_tokens": 0}, "invalid_request", "max_tokens"),
    ("text as number", {"max_tokens": "5"}, "invalid_request", "max_tokens"),
    ("seed", {"seed": 2**70}, "invalid_request", "seed"),
    ("penalty", {"presence_penalty": 3}, "invalid_request", "presence_penalty"),
    ("stops", {"stop": ["x"] * 17}, "invalid_request", "stop"),
    ("empty stop", {"stop": ""}, "invalid_request", "stop"),
    ("top without logprobs", {"top_logprobs": 2}, "invalid_request", "top_logprobs"),
    ("many logprobs", {"logprobs": True, "top_logprobs": 21}, "invalid_request", "top_logprobs"),
    ("options", {"stream_options": {"include_usage": True}}, "invalid_request", "stream_options"),
    ("task", {"model": "sentence-transformers/all-MiniLM-L6-v2"}, "task_unsupported", "model"),
]  # fmt: skip
COMPLETION_BODIES: list[tuple[str, dict[str, object], str, str | None]] = [
    ("empty", {"prompt": ""}, "input_empty", "prompt"),
    ("two", {"prompt": ["a", "b"]}, "unsupported_parameter", "prompt"),
    ("tokens", {"prompt": [1, 2]}, "unsupported_parameter", "prompt"),
    ("echo", {"prompt": "x", "echo": True}, "unsupported_parameter", "echo"),
    ("best of", {"prompt": "x", "best_of": 3}, "unsupported_parameter", "best_of"),
    ("logprobs", {"prompt": "x", "logprobs": 30}, "invalid_request", "logprobs"),
]


async def test_bad_bodies_are_refused_and_never_queued(stand: Stand) -> None:
    cases = [("chat/completions", {"model": CHAT, "messages": ASK}, case) for case in CHAT_BODIES]
    cases += [("completions", {"model": CHAT}, case) for case in COMPLETION_BODIES]
    for path, good, (what, bad, code, param) in cases:
        answer = await stand.post(path, **good | bad)
        assert answer.status_code == 400, (what, answer.text)
        error = answer.json()["error"]
        assert (error["code"], error["param"]) == (code, param), (what, error)
        assert len(error["message"]) > 10, what
    assert "Near names: max_tokens" in (await stand.post("completions", model="m", prompt="x", max_token=1)).text
    assert stand.consumer.jobs == []


async def test_parts_reach_the_client_as_they_come(stand: Stand) -> None:
    held: list[tuple[Job, list[Result]]] = []

    def first_only(job: Job, inputs: GenerateInputs) -> list[Result]:
        first, *rest = text_parts(job, inputs)
        held.append((job, rest))
        return [first]

    stand.consumer.respond = first_only
    body = {"model": CHAT, "messages": ASK, "stream": True}
    async with stand.client.stream("POST", "/v1/chat/completions", json=body) as answer:
        lines = (line async for line in answer.aiter_lines() if line)
        assert '"content":"tell"' in await anext(lines)
        job, rest = held[0]
        for part in rest:
            await stand.connection.publish(job.reply, codec.encode(part))
        assert '"content":" me"' in await anext(lines)
        assert [line async for line in lines][-1] == "data: [DONE]"
