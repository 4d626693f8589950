"""Jobs that left the queue without an answer: listed from the stream DEAD, and published anew."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass

import msgspec
from asgiref.sync import async_to_sync
from django.conf import settings
from django.contrib.auth.models import User
from nats.errors import Error as NatsError
from nats.js.errors import APIError, NotFoundError

from controlplane.events.services import record_event
from fabric.connection import Connection, connect
from fabric.payloads import PayloadMissing, get_payload
from wire import codec, subjects
from wire.errors import Code, ErrorInfo, ShoalError
from wire.jobs import DeadJob, InputsReference, Job, Result

CONNECT_TIMEOUT_S = 3.0
CALL_TIMEOUT_S = 5.0
LISTED = 100
REPLAY_DEADLINE_S = 60.0
ANSWER_WAIT_S = 20.0
_NATS = (NatsError, APIError, OSError, TimeoutError)


@dataclass(frozen=True, slots=True)
class DeadRow:
    """One dead job without its inputs. ``sequence`` names it; ``readable`` is false for bytes that are no job.
    ``refused_until`` (seconds since the epoch): its version's jobs ended workers, so that the machine refuses them."""

    sequence: int
    job: str
    task: str
    pool: str
    model: str
    version: str
    team: str
    tokens: int
    error: ErrorInfo
    deliveries: int
    machine: str
    died: float
    readable: bool
    refused_until: float | None


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of a replay: ``outcome`` in words, ``answered`` when a worker said anything in time."""

    job: str
    answered: bool
    ok: bool
    outcome: str


def list_dead_jobs(*, teams: Collection[str] | None) -> list[DeadRow]:
    """The newest dead jobs, newest first; those of ``teams``, or of everybody for ``None``. Raises
    ``ShoalError(QUEUE_UNAVAILABLE)``."""
    rows: list[DeadRow] = async_to_sync(_list)(None if teams is None else frozenset(teams))
    return rows


def replay_dead_job(*, sequence: int, actor: User | None = None) -> Replayed:
    """Publish a dead job anew with a deadline of its own and wait up to 20 s for what a worker says.

    It leaves the list; if it dies again it comes back. Raises ``ShoalError``: NOT_FOUND, CONFLICT when its inputs
    are gone or it never was a job, QUEUE_UNAVAILABLE.
    """
    dead, replayed = async_to_sync(_replay)(sequence)
    record_event(
        kind="job.replayed",
        subject=f"job {dead.job.id}"[:200],
        message=f"Dead job {dead.job.id} for {dead.job.version or dead.job.model} replayed: {replayed.outcome}",
        actor=actor,
        data={"sequence": sequence, "job": replayed.job, "model": dead.job.model},
    )
    return replayed


@contextlib.asynccontextmanager
async def _connection() -> AsyncIterator[Connection]:
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            connection = await connect(settings.SHOAL.nats_url, name="web dead jobs")
    except _NATS as error:
        raise _away(error) from error
    try:
        yield connection
    except _NATS as error:
        raise _away(error) from error
    finally:
        await connection.close()


def _away(error: Exception) -> ShoalError:
    return ShoalError(
        Code.QUEUE_UNAVAILABLE,
        f"The dead jobs cannot be read: NATS at {settings.SHOAL.nats_url} does not answer ({type(error).__name__}).",
        hint="Start it and try again.",
    )


async def _list(teams: frozenset[str] | None) -> list[DeadRow]:
    found: list[DeadRow] = []
    async with _connection() as connection:
        js = connection.jetstream(timeout=CALL_TIMEOUT_S)
        try:
            state = (await js.stream_info(subjects.DEAD_STREAM)).state
        except NotFoundError:
            return []
        sequence, looked = state.last_seq, 0
        # removed ones leave gaps; another team's are passed over, within a bound
        while sequence >= max(1, state.first_seq) and len(found) < LISTED and looked < 10 * LISTED:
            dead = await _read(connection, sequence)
            if dead is not None and (teams is None or dead.job.tenant in teams):
                found.append(_row(sequence, dead))
            sequence, looked = sequence - 1, looked + 1
    return found


async def _read(connection: Connection, sequence: int) -> DeadJob | None:
    try:
        message = await connection.jetstream(timeout=CALL_TIMEOUT_S).get_msg(subjects.DEAD_STREAM, sequence)
        return codec.decode(message.data or b"", DeadJob)
    except (NotFoundError, codec.WireDecodeError):
        return None


async def _replay(sequence: int) -> tuple[DeadJob, Replayed]:
    async with _connection() as connection:
        js = connection.jetstream(timeout=CALL_TIMEOUT_S)
        dead = await _read(connection, sequence)
        if dead is None:
            raise ShoalError(
                Code.NOT_FOUND, f"There is no dead job {sequence}.", hint="It was replayed, or it expired."
            )
        await _check(connection, dead)
        asker, now = f"replay-{secrets.token_hex(6)}", time.time()
        job_id = f"{dead.job.id[:60]}-{secrets.token_hex(4)}"
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

        async def take(message: object) -> None:
            with contextlib.suppress(codec.WireDecodeError):
                result = codec.decode(message.data, Result)  # type: ignore[attr-defined]
                if result.final and not answer.done():
                    answer.set_result(result)

        await connection.subscribe(subjects.reply_filter(asker), cb=take)
        job = msgspec.structs.replace(
            dead.job,
            id=job_id,
            published=now,
            deadline=now + REPLAY_DEADLINE_S,
            reply=subjects.reply(asker, job_id),
        )
        await js.publish(subjects.work(job.pool, job.model), codec.encode(job), headers={"Nats-Msg-Id": job_id})
        await js.delete_msg(subjects.DEAD_STREAM, sequence)
        return dead, await _outcome(job, answer)


async def _check(connection: Connection, dead: DeadJob) -> None:
    if dead.raw is not None:
        raise ShoalError(Code.CONFLICT, "These bytes never were a job, so that there is nothing to replay.")
    if isinstance(dead.job.inputs, InputsReference):
        try:
            await get_payload(connection.jetstream(timeout=CALL_TIMEOUT_S), dead.job.inputs.name)
        except PayloadMissing:
            raise ShoalError(
                Code.CONFLICT,
                f"The inputs of {dead.job.id} ({dead.job.inputs.size_bytes} bytes) were kept for ten minutes only.",
                hint="Whoever asked can ask again.",
            ) from None


async def _outcome(job: Job, answer: asyncio.Future[Result]) -> Replayed:
    try:
        result = await asyncio.wait_for(answer, ANSWER_WAIT_S)
    except TimeoutError:
        text = f"on the queue; nobody answered within {ANSWER_WAIT_S:.0f} s"
        return Replayed(job.id, answered=False, ok=False, outcome=text)
    if result.error is not None:
        text = f"failed again: {result.error.message} ({result.error.code})"
        return Replayed(job.id, answered=True, ok=False, outcome=text)
    return Replayed(job.id, answered=True, ok=True, outcome=f"answered by {result.worker or 'a worker'}")


def _row(sequence: int, dead: DeadJob) -> DeadRow:
    job = dead.job
    return DeadRow(
        sequence=sequence,
        job=job.id,
        task=job.task.value,
        pool=job.pool,
        model=job.model,
        version=job.version or "",
        team=job.tenant,
        tokens=job.token_estimate,
        error=dead.error,
        deliveries=dead.deliveries,
        machine=dead.machine,
        died=dead.died,
        readable=dead.raw is None,
        refused_until=dead.refused_until,
    )
