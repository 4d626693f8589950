"""Commands to a machine's sidecar over NATS request/reply."""

from __future__ import annotations

import contextlib

import nats
import nats.errors
from asgiref.sync import async_to_sync
from django.conf import settings

from wire.codec import WireDecodeError, decode, encode
from wire.errors import Code, ShoalError
from wire.frames import CommandReply, WorkerCommand
from wire.subjects import command

CONNECT_TIMEOUT_S = 2
REPLY_TIMEOUT_S = 5.0


def send_command(machine: str, sent: WorkerCommand) -> CommandReply:
    """The sidecar's answer.

    Raises ``ShoalError``: QUEUE_UNAVAILABLE when NATS is away, NO_WORKER when no sidecar of that machine listens or
    answers within 5 s, INTERNAL when its answer cannot be read.
    """
    return async_to_sync(_request)(machine, sent)


async def _request(machine: str, sent: WorkerCommand) -> CommandReply:
    try:
        client = await nats.connect(
            settings.SHOAL.nats_url.split(","),
            name="web command",
            allow_reconnect=False,
            connect_timeout=CONNECT_TIMEOUT_S,
            error_cb=_ignore,
        )
    except (OSError, TimeoutError, nats.errors.Error) as error:
        raise ShoalError(
            Code.QUEUE_UNAVAILABLE,
            f"NATS at {settings.SHOAL.nats_url} cannot be reached, so the command was not sent.",
            hint="Start it and try again.",
        ) from error
    try:
        message = await client.request(command(machine), encode(sent), timeout=REPLY_TIMEOUT_S)
        return decode(message.data, CommandReply)
    except nats.errors.NoRespondersError as error:
        raise ShoalError(
            Code.NO_WORKER, f"No sidecar of machine {machine} is connected.", hint="Start `python -m sidecar` there."
        ) from error
    except (nats.errors.TimeoutError, TimeoutError) as error:
        raise ShoalError(
            Code.NO_WORKER, f"The sidecar of machine {machine} did not answer within {REPLY_TIMEOUT_S:.0f} s."
        ) from error
    except WireDecodeError as error:
        raise ShoalError(Code.INTERNAL, f"The sidecar of machine {machine} answered with something else.") from error
    finally:
        with contextlib.suppress(nats.errors.Error, OSError):
            await client.close()


async def _ignore(error: Exception) -> None:
    """The connect call raises what matters; the client's own log line would say it twice."""
