"""Turns what a probe measured into report rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wire.reports import Finding, Outcome, Row
from wire.validation import ProbeRequest
from workers.models.protocol import Vectors

CHECK = "Output equals PEFT's"
_EFFECT = "Effect"

# Two float32 forward passes that only differ in order of summation differ by some 1e-7 of the largest value in a
# dozen layers; ten times that is still noise, and anything above it is the adapter.
NOISE = 2e-6
# An adapter whose whole effect is 1e-4 would pass an absolute bound of 1e-4 with a wrong scale. So the difference
# must also be small beside the effect: a scale wrong by 2 % fails.
_SHARE_OF_EFFECT = 0.02


@dataclass(frozen=True, slots=True)
class Measured:
    """Largest absolute differences over all rows and values: served to PEFT, PEFT to base, served to base, base rows
    of the mixed batch to the base alone; and rows with NaN or Inf."""

    difference: float = 0.0
    peft_effect: float = 0.0
    effect: float = 0.0
    base_difference: float = 0.0
    magnitude: float = 1.0
    nonfinite_rows: int = 0
    rows: int = 0

    @classmethod
    def compare(cls, *, adapted: Vectors, in_mix: Vectors, expected: Vectors, alone: Vectors) -> Measured:
        """Measure served vectors (rows, dimension) against PEFT's ``expected`` and the base's ``alone``."""
        return cls(
            difference=_largest(adapted, expected),
            peft_effect=_largest(expected, alone),
            effect=_largest(adapted, in_mix),
            base_difference=_largest(in_mix, alone),
            magnitude=float(np.abs(expected).max()),
            rows=2 * len(adapted),
        )

    @classmethod
    def of_nonfinite(cls, *served: Vectors) -> Measured:
        """Count the rows that hold NaN or Inf."""
        bad = sum(int((~np.isfinite(vectors)).any(axis=1).sum()) for vectors in served)
        return cls(nonfinite_rows=bad, rows=sum(map(len, served)))


def judge(request: ProbeRequest, measured: Measured) -> list[Row]:
    """Rows of a probe that ran to its end."""
    if measured.nonfinite_rows:
        what = f"{measured.nonfinite_rows} of {measured.rows} rows came out as NaN or Inf; the weights are finite."
        todo = "The update is too large for the base: train with a smaller lora_alpha or learning rate."
        return [_row(CHECK, Outcome.FAIL, Finding.PROBE_NONFINITE, what, todo)]
    tolerance = request.tolerance * max(1.0, measured.magnitude)
    noise = NOISE * max(1.0, measured.magnitude)
    bound = min(tolerance, max(noise, _SHARE_OF_EFFECT * measured.peft_effect))
    if not measured.difference <= bound:
        return [_mismatch(f"served and PEFT's output differ by {measured.difference:.1e} (limit {bound:.1e})")]
    if not measured.base_difference <= tolerance:
        what = f"base rows beside the adapter differ by {measured.base_difference:.1e} from the base alone"
        return [_mismatch(what)]
    what = f"{measured.rows} rows of base and adapter in one batch: largest difference {measured.difference:.1e}"
    return [
        _row(CHECK, Outcome.PASS, Finding.PROBE_PASSED, f"{what} (limit {bound:.1e})."),
        _effect(request, measured, noise),
    ]


def failure(what: str, reason: str) -> Row:
    """One side could not load the adapter at all."""
    todo = "Load it with PEFT on the same base model; if that works, report it with this digest."
    return _row(CHECK, Outcome.FAIL, Finding.PROBE_FAILED, f"{what}: {reason.strip()[:400]}", todo)


def _effect(request: ProbeRequest, measured: Measured, noise: float) -> Row:
    if not request.expect_effect:
        # the note on the zero weights is in the report already
        what = f"none, as the weights say: largest difference to the base {measured.effect:.1e}"
        return _row(_EFFECT, Outcome.PASS, Finding.OK, what)
    if measured.effect > noise:
        what = f"the output differs from the base's by up to {measured.effect:.1e}"
        return _row(_EFFECT, Outcome.PASS, Finding.OK, what)
    what = f"The output equals the base's: largest difference {measured.effect:.1e} (noise {noise:.1e}), with PEFT too."
    todo = "Check that training ran and that the trained weights were saved."
    return _row(_EFFECT, Outcome.NOTE, Finding.NO_EFFECT, what, todo)


def _mismatch(what: str) -> Row:
    todo = "Check rank, alpha and patterns in adapter_config.json; if they are right, report it with this digest."
    return _row(CHECK, Outcome.FAIL, Finding.PROBE_MISMATCH, f"{what[0].upper()}{what[1:]}.", todo)


def _row(check: str, outcome: Outcome, code: Finding, found: str, todo: str = "") -> Row:
    return Row(check=check, outcome=outcome, code=code, found=found, todo=todo)


def _largest(one: Vectors, other: Vectors) -> float:
    return float(np.abs(one - other).max())
