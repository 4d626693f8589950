"""The operations guide and the unit files say what the code does."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from pydantic_settings import BaseSettings

from controlplane.settings.environment import Environment
from controlplane.stack.settings import StackSettings
from gateway.settings import GatewaySettings
from loras.validation.settings import ProbeSettings
from sidecar.settings import SidecarSettings
from workers.settings import WorkerSettings

PROJECT = Path(__file__).resolve().parent.parent.parent.parent
GUIDE = (PROJECT / "docs" / "operations.md").read_text()
UNITS = sorted((PROJECT / "deploy" / "systemd").glob("*.service"))
CLASSES: list[type[BaseSettings]] = [
    Environment, StackSettings, ProbeSettings, GatewaySettings, SidecarSettings, WorkerSettings,
]  # fmt: skip


def setting_names() -> set[str]:
    """Environment name of every field of every settings class."""
    return {
        str(field.validation_alias or f"{settings.model_config.get('env_prefix', '')}{name}".upper())
        for settings in CLASSES
        for name, field in settings.model_fields.items()
    }


def test_table_names_every_setting_and_no_other() -> None:
    table = GUIDE.partition("## Settings")[2]
    assert set(re.findall(r"^\| `([A-Z_]+)` \|", table, re.MULTILINE)) == setting_names()


def test_example_environments_use_settings_that_exist() -> None:
    foreign = {"OMP_NUM_THREADS", "HF_HUB_DISABLE_TELEMETRY", "CUDA_VISIBLE_DEVICES"}
    for example in (PROJECT / "deploy").glob("*.env.example"):
        names = set(re.findall(r"^([A-Z_]+)=", example.read_text(), re.MULTILINE))
        assert names
        assert {name.removesuffix("_FILE") for name in names} <= setting_names() | foreign


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: str(unit.name))
def test_unit_starts_a_program_that_exists(unit: Path) -> None:
    (command,) = re.findall(r"^ExecStart=/opt/shoal/\.venv/bin/python (.+)$", unit.read_text(), re.MULTILINE)
    words = command.split()
    if words[0] == "-m":
        assert importlib.util.find_spec(words[1]) is not None
    else:
        assert (PROJECT / words[0]).is_file()
        assert importlib.util.find_spec(f"fleet.management.commands.{words[1]}") is not None


def test_there_is_a_unit_for_every_part_of_the_embedded_stack() -> None:
    parts = set(re.findall(r"^\| `([a-z]+)`", GUIDE.partition("| part |")[2].partition("## ")[0], re.MULTILINE))
    servers_and_commands = {"nats", "valkey", "prepare", "models"}
    assert {unit.stem.removeprefix("shoal-").rstrip("@") for unit in UNITS} == parts - servers_and_commands
