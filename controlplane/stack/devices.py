"""Which devices this machine has, without torch: one worker is started for each."""

from __future__ import annotations

from dataclasses import dataclass

import pynvml

from controlplane.stack.failures import StackError

MAX_SIMULATED = 64


@dataclass(frozen=True, slots=True)
class Device:
    """``worker`` names the worker; ``cuda_uuid`` is NVML's UUID, which is stable where an index is not. A ``simulated``
    device computes nothing: it is for seeing and testing a fleet without one."""

    worker: str
    cuda_uuid: str | None = None
    simulated: bool = False


def find_devices(wanted: str) -> list[Device]:
    """Devices for ``SHOAL_DEVICES``: ``auto`` takes every GPU or else the CPU, ``cpu`` the CPU alone,
    ``simulated:<number>`` so many that are not real, else UUIDs.

    Raises ``StackError`` when a named UUID is not on this machine, or for a number that is none.
    """
    kind, _, number = wanted.partition(":")
    if kind == "simulated":
        return _simulated(number)
    if wanted == "cpu":
        return [Device("cpu")]
    present = _nvml_uuids()
    if wanted == "auto":
        return [_gpu(uuid) for uuid in present] or [Device("cpu")]
    asked = [uuid.strip() for uuid in wanted.split(",") if uuid.strip()]
    if missing := [uuid for uuid in asked if uuid not in present]:
        raise StackError(
            f"SHOAL_DEVICES names {', '.join(missing)}, which this machine does not have; "
            f"it has {', '.join(present) or 'no GPU'}. Use auto, cpu, or UUIDs as `nvidia-smi -L` prints them"
        )
    return [_gpu(uuid) for uuid in asked]


def _simulated(number: str) -> list[Device]:
    if not number.isdecimal() or not 1 <= int(number) <= MAX_SIMULATED:
        raise StackError(f"SHOAL_DEVICES is simulated:{number}; use simulated:1 to simulated:{MAX_SIMULATED}")
    return [Device(f"simulated-{at}", simulated=True) for at in range(int(number))]


def _gpu(uuid: str) -> Device:
    # the first 8 characters of a GPU's UUID tell the devices of a machine apart and still fit a log prefix
    return Device(f"gpu-{uuid.removeprefix('GPU-').removeprefix('MIG-')[:8]}", uuid)


def _nvml_uuids() -> list[str]:
    """UUIDs of all GPUs; none without a driver, or when it may not be asked."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        return [uuid for index in range(pynvml.nvmlDeviceGetCount()) if (uuid := _uuid_of(index))]
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()


def _uuid_of(index: int) -> str | None:
    """``None`` for a device that fell off the bus: it must not keep the others from serving."""
    try:
        uuid = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index))
    except pynvml.NVMLError:
        return None
    return uuid.decode() if isinstance(uuid, bytes) else str(uuid)
