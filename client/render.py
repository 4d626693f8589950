"""What the ``shoal`` command prints: tables on a terminal, plain lines elsewhere, JSON when asked."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as Bar
from rich.table import Table

from client.models import Evaluation, Figures, Question, ReportRow, VersionInfo, WorkerInfo
from client.similarity import Answer, Comparison
from client.uploading import Progress

MARKS = {"pass": ("✓", "green"), "note": ("•", "cyan"), "fail": ("✗", "red"), "ask": ("?", "yellow")}
STATE_COLOURS = {"ready": "green", "rejected": "red", "needs_input": "yellow", "validating": "cyan"}


def console() -> Console:
    """Standard output; outside a terminal lines are as long as they need to be, so that logs stay greppable."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 160)


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


@dataclass(frozen=True, slots=True)
class Shown:
    """How an upload shows itself: ``progress`` gets sent and total bytes, ``note`` a line where something happens."""

    progress: Progress | None
    note: Callable[[str], None]


@contextlib.contextmanager
def upload_progress(*, quiet: bool) -> Iterator[Shown]:
    """A bar on a terminal, a line every tenth elsewhere, nothing when ``quiet``."""
    if quiet:
        yield Shown(None, lambda text: None)
    elif not sys.stderr.isatty():
        yield Shown(_plain_progress(), lambda text: click.echo(text, err=True))
    else:
        columns = (
            TextColumn("sending"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("sending", total=None)

            def move(sent: int, total: int) -> None:
                bar.update(task, completed=sent, total=total)

            yield Shown(move, lambda text: bar.console.print(_plain(text)))


def _plain_progress() -> Progress:
    shown = [-1]

    def show(sent: int, total: int) -> None:
        tenth = 10 * sent // max(total, 1)
        if tenth > shown[0]:
            shown[0] = tenth
            click.echo(f"sent {sent:,} of {total:,} bytes", err=True)

    return show


def print_version(version: VersionInfo) -> None:
    """Verdict table, then one line with the state and the next step."""
    out = console()
    if version.report is not None:
        out.print(verdict_table(version.report.rows))
    colour = STATE_COLOURS.get(version.state, "white")
    line = f"{version.address} is [{colour}]{version.state}[/{colour}]"
    if version.known or version.duplicate_upload is not None:
        line += " (the same content was uploaded before; nothing new was registered)"
    if version.aliases:
        line += f", alias {', '.join(version.aliases)}"
    if version.digest:
        line += f", digest {version.digest[:12]}, served {version.mode}"
    out.print(line)
    if version.state == "needs_input" and version.question is not None:
        _print_question(version.question)


def _print_question(question: Question) -> None:
    out = console()
    out.print(_plain(question.text))
    for choice in question.choices:
        out.print(f"  {question.option} {_plain(choice)}")
    out.print(f"Run the same command again with {question.option}, or answer on the adapter's page.")


def print_evaluation(found: Evaluation) -> None:
    """One line for each measured model, then the decision."""
    out = console()
    names = sorted({name for row in found.results for name in row.metrics})
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in ("measured", "model", *names):
        table.add_column(head, justify="right" if head in names else "left")
    for row in found.results:
        figures = [f"{row.metrics[name]:.4f}" if name in row.metrics else "—" for name in names]
        table.add_row(row.role, _plain(row.name + (f": {row.problem}" if row.problem else "")), *figures)
    if found.results:
        out.print(table)
    line = found.error or found.decision or f"{found.rows} rows measured"
    out.print(f"evaluation {found.state}: {_plain(line)}")


def verdict_table(rows: list[ReportRow]) -> Table:
    """One line per check."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in ("", "check", "found", "code"):
        table.add_column(head, overflow="fold")
    for row in rows:
        mark, colour = MARKS.get(row.outcome, ("?", "white"))
        found = row.found + (f"\n→ {row.todo}" if row.todo else "")
        table.add_row(f"[{colour}]{mark}[/{colour}]", row.check, _plain(found), f"[dim]{row.code}[/dim]")
    return table


def _plain(text: str) -> str:
    return text.replace("[", "\\[")


def print_versions(rows: list[VersionInfo]) -> None:
    """Newest first."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in ("version", "state", "alias", "mode", "size", "digest", "created", "message"):
        table.add_column(head, justify="right" if head == "size" else "left")
    for row in rows:
        colour = STATE_COLOURS.get(row.state, "white")
        table.add_row(
            str(row.number), f"[{colour}]{row.state}[/{colour}]", ", ".join(row.aliases), row.mode,
            f"{row.size_bytes / 1e6:.2f} MB", row.digest[:12], row.created_at[:16].replace("T", " "),
            _plain(row.message),
        )  # fmt: skip
    console().print(table if rows else "No version yet.")


def split_words(split: dict[str, int]) -> str:
    """``version 3`` or ``version 3 95 %, version 4 5 %``."""
    total = sum(split.values())
    if len(split) == 1:
        return f"version {next(iter(split))}"
    return ", ".join(f"version {number} {100 * weight / total:.0f} %" for number, weight in split.items())


def print_workers(rows: list[WorkerInfo]) -> None:
    """One line per worker; a figure nobody knows is a dash, never 0."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in ("worker", "state", "pool", "device", "utilization", "requests/s", "tokens/s", "adapters"):
        table.add_column(head, justify="right" if "/s" in head or head in ("utilization", "adapters") else "left")
    for row in rows:
        state = f"stale, last seen {row.last_seen_s:.0f} s ago" if row.stale and row.last_seen_s else row.state
        figures = row.live.figures if row.live else Figures()
        use = figures.utilization
        adapters = row.live.adapters if row.live else None
        table.add_row(
            f"{row.machine}/{row.worker}", state, row.pool, row.device.name if row.device else "—",
            "—" if use is None else f"{100 * use:.0f} %", _figure(figures.requests_per_s),
            _figure(figures.tokens_per_s), "—" if adapters is None else str(len(adapters)),
        )  # fmt: skip
    console().print(table if rows else "No worker was seen yet. Start one with `make up`, or on a machine of its own.")


def _figure(value: float | None) -> str:
    return "—" if value is None else f"{value:,.0f}"


def print_comparison(comparison: Comparison) -> None:
    """Similarities side by side, then the figures of both requests."""
    out = console()
    answers = [answer for answer in (comparison.base, comparison.model) if answer is not None]
    if len(comparison.texts) > 1:
        table = Table(
            box=None,
            pad_edge=False,
            header_style="dim",
            title=_plain(comparison.texts[0]),
            title_justify="left",
        )
        table.add_column("similarity to the first text", overflow="fold")
        for answer in answers:
            table.add_column(answer.version, justify="right")
        for number, text in enumerate(comparison.texts[1:]):
            table.add_row(_plain(text), *(f"{answer.similarities[number]:.3f}" for answer in answers))
        out.print(table)
    for answer in answers:
        out.print(_timing(answer))
    if comparison.agreement is not None:
        out.print(f"mean cosine between base and adapter: {comparison.agreement:.3f}")


def _timing(answer: Answer) -> str:
    return (
        f"{answer.version}  {answer.elapsed_ms:.1f} ms (queue {answer.queue_ms:.1f} ms, batch {answer.batch_size})"
        f"  digest {answer.digest[:12]}"
    )
