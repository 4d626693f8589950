"""Runs one validation: the checks in a limited child, then the probe, and merges both into one report."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import structlog

from loras.validation.findings import failed
from loras.validation.limits import SandboxLimits
from loras.validation.outcome import Ending, ValidationOutcome
from loras.validation.probing import probe
from loras.validation.sandbox import ChildEnding, run_child
from loras.validation.settings import ProbeSettings
from wire.codec import WireDecodeError, decode_json, encode_json
from wire.reports import Finding, Outcome, Report, Row
from wire.validation import ProbeEnding, ProbeReply, SandboxReply, ValidationRequest

__all__ = ["Ending", "SandboxLimits", "ValidationOutcome", "run_validation"]

# what is left for the probe of an upload whose checks took nearly all the time
_SHORTEST_PROBE_S = 5.0
_DIRECTORIES = re.compile(r"(?<![\w.])(?:/[^\s/:'\"]+)+/(?=[^\s/])")

log = structlog.get_logger(__name__)


def run_validation(
    request: ValidationRequest, *, limits: SandboxLimits, probe_socket: Path | None = None
) -> ValidationOutcome:
    """Judge one upload within ``limits.timeout_s`` and some seconds, with no exception for anything it holds.

    ``probe_socket`` is the warm probe server's; without it ``SHOAL_PROBE_SOCKET`` names it, and without that
    a child is started. Raises ``NotADirectoryError`` when ``request.work_dir`` is not a directory.
    """
    if not Path(request.work_dir).is_dir():
        raise NotADirectoryError(f"work_dir {request.work_dir} is not a directory")
    started = time.monotonic()
    sandboxed = _run_checks(request, limits)
    if isinstance(sandboxed, Ending):
        return _without_verdict(Report(rows=[]), sandboxed, limits, started)
    if sandboxed.probe is None:
        return ValidationOutcome(_timed(sandboxed.report, started), None)
    server = probe_socket or ProbeSettings().probe_socket
    left_s = max(_SHORTEST_PROBE_S, limits.timeout_s - (time.monotonic() - started))
    reply = probe(sandboxed.probe, limits=replace(limits, timeout_s=left_s), server=server)
    if reply.ending is not ProbeEnding.DECIDED:
        return _without_verdict(sandboxed.report, Ending(reply.ending), limits, started)
    report = _timed(_merged(sandboxed.report, reply), started)
    return ValidationOutcome(report, None if report.failed else Path(sandboxed.canonical_path))


def _run_checks(request: ValidationRequest, limits: SandboxLimits) -> SandboxReply | Ending:
    result = run_child("loras.validation", limits.arguments(), encode_json(request), timeout_s=limits.timeout_s)
    if result.ending is ChildEnding.ANSWERED:
        try:
            return decode_json(result.reply, SandboxReply)
        except WireDecodeError:
            log.exception("unreadable reply of a validation child", work_dir=request.work_dir)
            return Ending.CRASHED
    log.error("validation without a verdict", work_dir=request.work_dir, ending=result.ending, reason=result.reason)
    return Ending.TIMED_OUT if result.ending is ChildEnding.TIMED_OUT else Ending.CRASHED


def _merged(report: Report, reply: ProbeReply) -> Report:
    facts = report.facts
    if any(row.code is Finding.NO_EFFECT for row in reply.rows):
        facts = msgspec.structs.replace(facts, has_effect=False)
    return msgspec.structs.replace(
        report, rows=[*report.rows, *(told(row, report.kind) for row in reply.rows)], facts=facts
    )


def told(row: Row, kind: str) -> Row:
    """A row of the probe for the uploader: no folders of this machine, and for a whole model its own next step."""
    if row.code is not Finding.PROBE_FAILED:
        return row
    todo = "Load the folder with transformers' from_pretrained; upload what save_pretrained writes then."
    found = _DIRECTORIES.sub("", row.found)
    return msgspec.structs.replace(row, found=found, todo=todo if kind == "full" else row.todo)


def _without_verdict(report: Report, ending: Ending, limits: SandboxLimits, started: float) -> ValidationOutcome:
    row = _interrupted(ending, limits, during="the probe" if report.rows else "the checks")
    rows = [*(row for row in report.rows if row.outcome is not Outcome.FAIL), row]
    return ValidationOutcome(_timed(msgspec.structs.replace(report, rows=rows), started), None, ending)


def _interrupted(ending: Ending, limits: SandboxLimits, *, during: str) -> Row:
    if ending is Ending.TIMED_OUT:
        found = f"Validation was stopped during {during}: more than {limits.timeout_s:g} s."
        todo = "Upload it again; if that fails too, the adapter takes too long to check on this machine."
        return failed("Validation", Finding.VALIDATION_TIMEOUT, found, todo)
    found = f"The process that validated the upload ended without a verdict during {during}."
    todo = f"Upload it again; if that fails too, it may need more than {limits.memory_bytes:,} bytes of memory."
    return failed("Validation", Finding.VALIDATION_CRASHED, found, todo)


def _timed(report: Report, started: float) -> Report:
    return msgspec.structs.replace(report, seconds=round(time.monotonic() - started, 3))
