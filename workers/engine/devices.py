"""Facts of the device itself, live: psutil for a CPU, NVML by UUID for a GPU. What is unknown stays unknown."""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import psutil
import torch

from wire.telemetry import DeviceSample


class DeviceProbe(Protocol):
    """Where samples of one device come from."""

    id: str
    name: str
    memory_bytes: int | None

    def sample(self) -> DeviceSample:
        """The device now; never raises."""
        ...


class CpuProbe:
    """The whole machine's processor and memory."""

    id = "cpu"

    def __init__(self) -> None:
        self.name = _cpu_name()
        self.memory_bytes: int | None = psutil.virtual_memory().total
        psutil.cpu_percent(interval=None)  # the first call only starts the interval

    def sample(self) -> DeviceSample:
        memory = psutil.virtual_memory()
        return DeviceSample(
            id=self.id,
            kind="cpu",
            name=self.name,
            utilization=round(psutil.cpu_percent(interval=None) / 100, 4),
            memory_used_bytes=memory.total - memory.available,
            memory_total_bytes=memory.total,
            note="The whole machine, measured with psutil; a CPU has no power or temperature figure here.",
        )


class CudaProbe:
    """One GPU, found in NVML by its UUID: indices differ between CUDA and NVML."""

    def __init__(self, device: str) -> None:
        facts = torch.cuda.get_device_properties(torch.device(device))
        self.id = f"GPU-{facts.uuid}"
        self.name: str = facts.name
        self.memory_bytes: int | None = facts.total_memory
        self._handle: Any = None
        self._note: str | None = None
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml: Any = pynvml
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(self.id)
        except Exception as error:  # no library, no driver, no permission: serving goes on without figures
            self._note = f"NVML does not answer for {self.id}: {error}"

    def sample(self) -> DeviceSample:
        if self._handle is None:
            return DeviceSample(
                id=self.id, kind="cuda", name=self.name, memory_total_bytes=self.memory_bytes, note=self._note
            )
        nvml, handle = self._nvml, self._handle
        missing: list[str] = []
        utilization = _read(missing, "utilization", lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100)
        used = _read(missing, "memory", lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used)
        power = _read(missing, "power", lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000)
        heat = _read(missing, "temperature", lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
        return DeviceSample(
            id=self.id,
            kind="cuda",
            name=self.name,
            utilization=utilization,
            memory_used_bytes=None if used is None else int(used),
            memory_total_bytes=self.memory_bytes,
            power_watts=power,
            temperature_c=heat,
            note=f"Not given by this device: {', '.join(missing)}." if missing else None,
        )


def open_probe(device: str) -> DeviceProbe:
    """The probe of ``cpu`` or ``cuda[:index]``."""
    return CpuProbe() if device == "cpu" else CudaProbe(device)


def _read(missing: list[str], name: str, read: Callable[[], float]) -> float | None:
    try:
        return float(read())
    except Exception:  # NVML raises its own classes, one per field that a device does not support
        missing.append(name)
        return None


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
