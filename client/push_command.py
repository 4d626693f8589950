"""``shoal push``: upload, wait for the verdict, answer its question, say by the exit code what became of it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from client import render
from client.api import Shoal
from client.edge import EXIT_ASKED, EXIT_REJECTED, guarded, json_option
from client.models import Evaluation, VersionInfo
from client.wishes import IF_BETTER, Wishes

# a version asks one question after the other; no upload has more of them
MOST_QUESTIONS = 5


@click.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--name", required=True, help="team/adapter")
@click.option("--base-model", default="", help="Base model, where the upload does not say.")
@click.option("--kind", type=click.Choice(["lora", "full"]), help="What the upload is, where it could be both.")
@click.option("--choice", default="", help="Which folder or file is meant, where the upload holds several.")
@click.option("--promote", is_flag=True, help="Make it live once it is ready.")
@click.option("--eval", "evaluation", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="JSONL to measure it on, against the live version and the base.")  # fmt: skip
@click.option("--promote-if-better", is_flag=True, help="Make it live only if --eval says that it is better.")
@click.option("--message", "-m", default="", help="What changed.")
@click.option("--wait/--no-wait", default=True, help="Wait for the verdict (default).")
@click.option("--timeout", "timeout_s", default=180.0, show_default=True, help="Seconds to wait for the verdict.")
@json_option
@click.pass_obj
@guarded
def push(
    connect: Callable[[], Shoal],
    path: Path,
    name: str,
    base_model: str,
    kind: str | None,
    choice: str,
    promote: bool,
    evaluation: Path | None,
    promote_if_better: bool,
    message: str,
    wait: bool,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Upload a folder, archive or file as the next version of an adapter.

    A large upload that was cut off goes on where it stopped when the same command runs again. Exit code: 0 ready (or
    received, with --no-wait), 1 refused, 2 rejected with its report, 3 unreachable, 4 a question is open: its choices
    are printed, and the option that answers it.
    """
    if promote_if_better and evaluation is None:
        raise click.UsageError("--promote-if-better needs --eval FILE.")
    if promote_if_better and promote:
        raise click.UsageError("Say --promote or --promote-if-better, not both.")
    wishes = Wishes(base_model, kind or "", choice, message, IF_BETTER if promote_if_better else promote)
    measured: Evaluation | None = None
    with connect() as shoal:
        with render.upload_progress(quiet=as_json) as shown:
            version = shoal.push(
                path, name=name, wishes=wishes, evaluation=evaluation, progress=shown.progress, note=shown.note
            )
        if wait:
            limit = time.monotonic() + timeout_s
            version = _wait(shoal, version, wishes, limit)
            if evaluation is not None and version.state == "ready":
                measured = _wait_for_evaluation(shoal, version, limit)
                version = shoal.version(version.name, version.number)
    if as_json:
        render.print_json(version if measured is None else _with_evaluation(version, measured))
    else:
        render.print_version(version)
        if measured is not None:
            render.print_evaluation(measured)
    sys.exit(_exit_code(version, wait=wait))


def _with_evaluation(version: VersionInfo, measured: Evaluation) -> dict[str, Any]:
    """The version's JSON with what was measured."""
    return {**msgspec.to_builtins(version), "evaluation": msgspec.to_builtins(measured)}


def _wait(shoal: Shoal, version: VersionInfo, wishes: Wishes, limit: float) -> VersionInfo:
    """The verdict; a question that an option answers already is answered, once each."""
    answered: set[str] = set()
    for _ in range(MOST_QUESTIONS):
        version = shoal.wait(version, timeout_s=limit - time.monotonic())
        question = version.question if version.state == "needs_input" else None
        if question is None or question.field in answered:
            return version
        value = wishes.answer_to(question.field)
        if not value or (question.choices and value not in question.choices):
            return version
        answered.add(question.field)
        version = shoal.answer(version, question.field, value)
    return version


def _wait_for_evaluation(shoal: Shoal, version: VersionInfo, limit: float) -> Evaluation | None:
    """The newest evaluation once it has ended. Raises ``TimeoutError``."""
    pause_s = 0.2
    while True:
        rows = shoal.evaluations(version)
        if not rows or rows[0].ended:
            return rows[0] if rows else None
        if time.monotonic() > limit:
            raise TimeoutError(f"the evaluation of {version.address} is still {rows[0].state}")
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.3, 2.0)


def _exit_code(version: VersionInfo, *, wait: bool) -> int:
    if version.state == "ready" or (not wait and not version.settled):
        return 0
    return EXIT_ASKED if version.state == "needs_input" else EXIT_REJECTED
