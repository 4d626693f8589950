"""How states look: one table for everything that pages show."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Look:
    """How a state is shown: colour class, icon of the sprite, word."""

    kind: str
    icon: str
    word: str


LOOKS: dict[str, Look] = {
    # versions
    "receiving": Look("busy", "busy", "Receiving"),
    "validating": Look("busy", "busy", "Validating"),
    "ready": Look("ok", "check-circle", "Ready"),
    "needs_input": Look("note", "question", "Needs input"),
    "rejected": Look("fail", "fail", "Rejected"),
    "retired": Look("idle", "retired", "Retired"),
    "duplicate": Look("note", "copy", "Known content"),
    "empty": Look("idle", "info", "No version"),
    # report rows
    "pass": Look("ok", "check-circle", "Pass"),
    "note": Look("info", "info", "Note"),
    "fail": Look("fail", "fail", "Fail"),
    "ask": Look("note", "question", "Question"),
    # evaluations
    "waiting": Look("idle", "clock", "Waits for its verdict"),
    "queued": Look("idle", "clock", "Queued"),
    "running": Look("busy", "busy", "Measuring"),
    "done": Look("ok", "check-circle", "Measured"),
    "failed": Look("fail", "fail", "Not measured"),
    # workers
    "starting": Look("busy", "busy", "Starting"),
    "draining": Look("note", "pause", "Draining"),
    "drained": Look("idle", "pause", "Drained"),
    "stale": Look("idle", "clock", "Stale"),
    # keys
    "active": Look("ok", "check-circle", "Active"),
    "expired": Look("idle", "clock", "Expired"),
    "revoked": Look("idle", "fail", "Revoked"),
}


def look_of(state: str) -> Look:
    """The look of ``state``; an unknown one is shown as its own word in grey."""
    return LOOKS.get(state) or Look("idle", "info", state.replace("_", " ").capitalize())
