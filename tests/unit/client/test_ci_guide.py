"""What the guide for CI tells is what the command takes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from client.cli import main
from client.push_command import push

GUIDE = (Path(__file__).parents[3] / "docs" / "ci.md").read_text()


def snippets(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


def test_every_option_exists() -> None:
    known = {option for parameter in push.params for option in (*parameter.opts, *parameter.secondary_opts)}
    lines = [line for line in GUIDE.replace("\\\n", " ").splitlines() if "shoal push" in line or line.startswith("- ")]
    named = {option for line in lines for option in re.findall(r"(?<![\w-])(--[a-z-]+)", line)}
    foreign = {"--no-deps", "--quiet", "--no-install-recommends"}
    assert named - foreign <= known
    assert {"--eval", "--promote-if-better", "--base-model", "--kind", "--choice", "--json"} <= named


def test_snippets_are_yaml_and_call_the_command() -> None:
    actions, gitlab = (yaml.safe_load(text) for text in snippets("yaml"))
    steps: list[dict[str, Any]] = actions["jobs"]["ship"]["steps"]
    commands = [step["run"] for step in steps if "run" in step] + gitlab["ship-adapter"]["script"]
    assert sum("shoal push" in command for command in commands) == 2
    assert "push" in main.commands
