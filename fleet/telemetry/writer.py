"""The bridge's side of Redis: states, machines, rings of points, and who of several bridges leads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from redis.asyncio import Redis

from fleet.ids import worker_key
from fleet.telemetry import keys
from fleet.telemetry.points import Point, Second
from fleet.telemetry.states import MachineState, WorkerState
from fleet.telemetry.stored import decode_known
from fleet.telemetry.usage import decoded_usage
from wire.codec import encode
from wire.usage import Usage

_Field = bytes | bytearray | memoryview | str | int | float

# keep the key of a leader that is us, take a free one, leave another's
LEAD = """
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] or not holder then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return 1
end
return 0
"""


class LiveWriter:
    """Writes are one pipeline a second and idempotent: a bridge that starts again, or a second one, repeats
    them."""

    def __init__(self, url: str) -> None:
        self._redis: Redis = Redis.from_url(url, socket_timeout=5, socket_connect_timeout=2)

    async def write(
        self, states: Iterable[WorkerState], machines: Iterable[MachineState], points: dict[str, list[Second]]
    ) -> None:
        """Store the newest states and the points; raises ``redis.RedisError`` or ``OSError`` when Redis is
        away."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for state in states:
                pipe.hset(keys.states(), state.key, encode(state))
            for machine in machines:
                pipe.hset(keys.machines(), machine.machine, encode(machine))
            pipe.expire(keys.states(), keys.STATE_EXPIRES_S)
            pipe.expire(keys.machines(), keys.STATE_EXPIRES_S)
            for worker, seconds in points.items():
                ring: dict[_Field, _Field] = {
                    str(second.at % keys.HISTORY_S): encode(second.point()) for second in seconds
                }
                pipe.hset(keys.history(worker), mapping=ring)
                pipe.expire(keys.history(worker), keys.HISTORY_EXPIRES_S)
            await pipe.execute()

    async def write_usage(self, messages: Mapping[tuple[int, str], bytes]) -> None:
        """Store usage by minute and message; raises as :meth:`write` does."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for minute in {minute for minute, _ in messages}:
                own: dict[_Field, _Field] = {name: data for (at, name), data in messages.items() if at == minute}
                pipe.hset(keys.usage(minute), mapping=own)
                pipe.expire(keys.usage(minute), keys.USAGE_EXPIRES_S)
            await pipe.execute()

    async def read_usage(self, minute: int) -> list[Usage]:
        """Every message of the minute that starts at ``minute``."""
        return decoded_usage(await self._redis.hvals(keys.usage(minute)))

    async def forget(self, before: float) -> None:
        """Drop states and machines last heard of before ``before`` (seconds since the epoch)."""
        states = decode_known(await self._redis.hgetall(keys.states()), WorkerState)
        machines = decode_known(await self._redis.hgetall(keys.machines()), MachineState)
        old_states = [worker_key(s.machine, s.worker) for s in states if s.received < before]
        old_machines = [m.machine for m in machines if m.received < before]
        if old_states:
            await self._redis.hdel(keys.states(), *old_states)
        if old_machines:
            await self._redis.hdel(keys.machines(), *old_machines)

    async def read_points(self, worker: str) -> list[Point]:
        """Every point in a worker's ring, in no order."""
        return decode_known(await self._redis.hgetall(keys.history(worker)), Point)

    async def lead(self, bridge: str) -> bool:
        """Whether ``bridge`` is the one that sends to the group for the next 3 s."""
        return bool(await self._redis.eval(LEAD, 1, keys.leader(), bridge, str(keys.LEADER_MS)))

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()
