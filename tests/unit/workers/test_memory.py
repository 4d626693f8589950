"""What memory is measured to be: peaks of a block, and resident bytes that come back when a model goes."""

from __future__ import annotations

import pytest
import torch

from workers.engine import memory as memory_module
from workers.engine.memory import DeviceMemory, return_freed
from workers.weights import weight_bytes

MEBIBYTE = 1 << 20


def resident_bytes() -> int:
    return memory_module._status_bytes("VmRSS")


def test_a_peak_is_seen_after_it_is_gone_and_freed_memory_is_no_part_of_it() -> None:
    memory = DeviceMemory("cpu")
    kept = [torch.ones(MEBIBYTE // 8) for _ in range(128)]  # 64 MiB in pieces that the heap holds on to
    del kept
    with memory.measure() as peak:
        block = torch.ones(16 * MEBIBYTE)  # 64 MiB
        del block
    with memory.measure() as nothing:
        pass
    assert peak.size_bytes is not None
    assert nothing.size_bytes is not None
    assert 60 * MEBIBYTE < peak.size_bytes < 96 * MEBIBYTE
    assert nothing.size_bytes < 16 * MEBIBYTE


def test_a_peak_that_cannot_be_measured_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(field: str) -> int:
        raise OSError("no such file")

    monkeypatch.setattr(memory_module, "_status_bytes", refused)
    with DeviceMemory("cpu").measure() as peak:
        pass
    assert peak.size_bytes is None


def test_weights_that_go_leave_the_resident_set() -> None:
    layers = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(256)])  # 64 MiB in 256 KiB pieces
    assert weight_bytes(layers) == 256 * 4 * (256 * 256 + 256)
    before = resident_bytes()
    del layers
    return_freed()
    assert before - resident_bytes() > 48 * MEBIBYTE


def test_tied_weights_count_once() -> None:
    one, other = torch.nn.Linear(64, 64, bias=False), torch.nn.Linear(64, 64, bias=False)
    other.weight = one.weight
    assert weight_bytes(torch.nn.ModuleList([one, other])) == 4 * 64 * 64


def test_the_limit_of_a_container_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = {"memory.max": 900, "memory.current": 700}
    monkeypatch.setattr(memory_module, "_cgroup_number", numbers.get)
    monkeypatch.setattr(memory_module, "_cgroup_file_cache", lambda: 50)
    assert DeviceMemory("cpu").free_bytes() == 250
    numbers["memory.current"] = 2000
    assert DeviceMemory("cpu").free_bytes() == 0
