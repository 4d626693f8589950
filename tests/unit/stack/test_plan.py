"""What the embedded stack runs, and what each child finds in its environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.stack.checks import RedisKeyExists
from controlplane.stack.devices import Device, find_devices
from controlplane.stack.environment import Environments, Sockets
from controlplane.stack.failures import StackError
from controlplane.stack.home import Endpoints, Home
from controlplane.stack.parts import Part, check_plan
from controlplane.stack.plan import Plan, plan_parts
from fleet.telemetry import keys
from loras.validation.limits import SandboxLimits

ENDPOINTS = Endpoints(
    "http://127.0.0.1:1801", "http://127.0.0.1:1802", "nats://127.0.0.1:1803", "redis://127.0.0.1:1804/0"
)
LIMITS = SandboxLimits.for_validation(90.5, 3 * 1024**3)
CPU = [Device("cpu")]
GPUS = [Device("gpu-aaaa", "GPU-aaaa"), Device("gpu-bbbb", "GPU-bbbb")]


def make_plan(
    tmp_path: Path, *, devices: list[Device] = CPU, own_nats: bool = True, own_redis: bool = True, **given: str
) -> dict[str, Part]:
    home = Home.prepare(tmp_path / "home")
    sockets = Sockets(home.run_dir / "sidecar.sock", home.run_dir / "probe.sock")
    environments = Environments(home, ENDPOINTS, sockets, {"PATH": "/bin", "SECRET_OF_MINE": "x", **given})
    parts = plan_parts(Plan(home, environments, devices, own_nats=own_nats, own_redis=own_redis, validation=LIMITS))
    check_plan(parts)
    return {part.name: part for part in parts}


@pytest.mark.parametrize("own_nats", [True, False])
@pytest.mark.parametrize("own_redis", [True, False])
@pytest.mark.parametrize("devices", [CPU, GPUS])
def test_every_plan_can_start_and_leaves_out_what_exists(
    tmp_path: Path, own_nats: bool, own_redis: bool, devices: list[Device]
) -> None:
    parts = make_plan(tmp_path, devices=devices, own_nats=own_nats, own_redis=own_redis)
    assert ("nats" in parts, "valkey" in parts) == (own_nats, own_redis)


def test_one_worker_per_gpu_each_sees_its_own(tmp_path: Path) -> None:
    parts = make_plan(tmp_path, devices=GPUS)
    for device in GPUS:
        environment = parts[device.worker].environment
        assert environment["CUDA_VISIBLE_DEVICES"] == device.cuda_uuid
        assert (environment["SHOAL_DEVICE"], environment["SHOAL_WORKER_ID"]) == ("cuda", device.worker)


def test_simulated_devices_are_as_many_as_asked_and_say_what_they_are(tmp_path: Path) -> None:
    devices = find_devices("simulated:3")
    parts = make_plan(tmp_path, devices=devices)
    assert [device.worker for device in devices] == ["simulated-0", "simulated-1", "simulated-2"]
    assert parts["simulated-1"].environment["SHOAL_DEVICE"] == "simulated:simulated-1"
    for wrong in ("simulated:", "simulated:0", "simulated:x", "simulated:1000"):
        with pytest.raises(StackError, match="simulated:1 to simulated:64"):
            find_devices(wrong)


def test_one_cpu_worker_keeps_all_cores_and_the_others_take_one(tmp_path: Path) -> None:
    parts = make_plan(tmp_path)
    assert "OMP_NUM_THREADS" not in parts["worker"].environment
    ours = {name for name in parts if name not in {"worker", "nats", "valkey"}}
    assert all(parts[name].environment["OMP_NUM_THREADS"] == "1" for name in ours)


def test_every_part_of_ours_gets_the_same_addresses_whatever_was_set(tmp_path: Path) -> None:
    parts = make_plan(tmp_path, NATS_URL="nats://old", SHOAL_WEB_PORT="0", SHOAL_HOME="relative", SHOAL_SLOTS="7")
    for name, part in parts.items():
        if name not in {"nats", "valkey"}:
            assert part.environment["NATS_URL"] == ENDPOINTS.nats
            assert part.environment["REDIS_URL"] == ENDPOINTS.redis
            assert part.environment["SHOAL_WEB_PORT"] == "1801"
            assert Path(part.environment["SHOAL_HOME"]).is_absolute()
            assert part.environment["SHOAL_SLOTS"] == "7", "what was set goes on to every part"


def test_public_addresses_go_into_snippets_and_artifacts_stay_on_loopback(tmp_path: Path) -> None:
    parts = make_plan(tmp_path, SHOAL_WEB_URL="https://shoal.example.org")
    assert parts["web"].environment["SHOAL_WEB_URL"] == "https://shoal.example.org"
    assert parts["sidecar"].environment["SHOAL_WEB_URL"] == ENDPOINTS.web


def test_servers_see_nothing_of_the_persons_environment(tmp_path: Path) -> None:
    parts = make_plan(tmp_path)
    assert parts["nats"].environment == parts["valkey"].environment == {"PATH": "/bin"}


def test_sidecar_waits_for_its_key_on_the_first_boot_only(tmp_path: Path) -> None:
    assert make_plan(tmp_path)["sidecar"].needs == ("nats", "prepare")
    (tmp_path / "home" / "machine_key").write_text("shoal_key")
    assert make_plan(tmp_path)["sidecar"].needs == ("nats",)


def test_bridge_is_ready_when_it_keeps_the_key_that_it_keeps(tmp_path: Path) -> None:
    check = make_plan(tmp_path)["bridge"].check
    assert isinstance(check, RedisKeyExists)
    assert check.key == keys.leader()


def test_devices_by_name() -> None:
    assert find_devices("cpu") == CPU
    with pytest.raises(StackError, match="SHOAL_DEVICES names GPU-not-here, which this machine does not have"):
        find_devices("GPU-not-here")


def test_there_is_always_a_device() -> None:
    assert find_devices("auto")


def test_the_warm_probe_keeps_to_the_limits_of_validations(tmp_path: Path) -> None:
    words = make_plan(tmp_path)["probe"].command
    assert {"--timeout-s=90.5", "--cpu-s=91", f"--memory-bytes={3 * 1024**3}"} <= set(words)
