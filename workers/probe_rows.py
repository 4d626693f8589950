"""Turns what a probe measured into report rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wire.registry import Mode
from wire.reports import Finding, Outcome, Row
from wire.validation import ProbeRequest
from workers.models.dtype import COSINE_BOUND
from workers.models.protocol import RowOutput

Outputs = Sequence[RowOutput]
CHECK = "Output equals the reference's"
_EFFECT = "Effect"

# Two float32 forward passes that only differ in order of summation differ by some 1e-7 of the largest value in a
# dozen layers; ten times that is still noise, and anything above it is the adapter.
NOISE = 2e-6
# An adapter whose whole effect is 1e-4 would pass an absolute bound of 1e-4 with a wrong scale. So the difference
# must also be small beside the effect: a scale wrong by 2 % fails.
_SHARE_OF_EFFECT = 0.02
_HALF_PRECISION = f"A worker that computes in half precision keeps a cosine of at least {COSINE_BOUND} to it."


@dataclass(frozen=True, slots=True)
class Measured:
    """Largest absolute differences over all rows and values: served to the reference, reference to base, served to
    base, second copies of rows (the base's in a mixed batch, or a fine-tune's in a second run) to the first; and rows
    with NaN or Inf. ``from_base``: effects are differences to the base, else those between texts."""

    difference: float = 0.0
    reference_effect: float = 0.0
    effect: float = 0.0
    base_difference: float = 0.0
    magnitude: float = 1.0
    nonfinite_rows: int = 0
    rows: int = 0
    from_base: bool = True

    @classmethod
    def compare(
        cls,
        *,
        adapted: Outputs,
        expected: Outputs,
        alone: Outputs | None,
        in_mix: Outputs,
        base_alone: Outputs,
    ) -> Measured:
        """Measure served outputs against the reference's ``expected``. ``alone`` are the base's own of the same rows;
        ``None`` where the base has none of the kind. Raises ``ValueError`` when shapes differ."""
        return cls(
            difference=_largest(adapted, expected),
            reference_effect=_spread(expected) if alone is None else _largest(expected, alone),
            effect=_spread(adapted) if alone is None else _largest(adapted, alone),
            base_difference=_largest(in_mix, base_alone[: len(in_mix)]) if in_mix else 0.0,
            magnitude=max(float(np.abs(one).max()) for one in expected),
            rows=len(adapted) + len(in_mix),
            from_base=alone is not None,
        )

    @classmethod
    def of_nonfinite(cls, *served: Outputs) -> Measured:
        """Count the rows that hold NaN or Inf."""
        bad = sum(not bool(np.isfinite(row).all()) for outputs in served for row in outputs)
        return cls(nonfinite_rows=bad, rows=sum(map(len, served)))


def judge(request: ProbeRequest, measured: Measured) -> list[Row]:
    """Rows of a probe that ran to its end."""
    reference = "plain transformers'" if request.kind == "full" else "PEFT's"
    check = f"Output equals {reference}"
    if measured.nonfinite_rows:
        what = f"{measured.nonfinite_rows} of {measured.rows} rows came out as NaN or Inf; the weights are finite."
        todo = "The update is too large for the base: train with a smaller lora_alpha or learning rate."
        if request.kind == "full":
            todo = "Load the folder with transformers in float32 and look at its output; train again if it is the same."
        return [_row(check, Outcome.FAIL, Finding.PROBE_NONFINITE, what, todo)]
    tolerance = request.tolerance * max(1.0, measured.magnitude)
    noise = NOISE * max(1.0, measured.magnitude)
    bound = min(tolerance, max(noise, _SHARE_OF_EFFECT * measured.reference_effect))
    if not measured.difference <= bound:
        what = f"served and {reference} output differ by {measured.difference:.1e} (limit {bound:.1e})"
        return [_mismatch(check, what)]
    if not measured.base_difference <= tolerance:
        what = f"base rows beside the adapter differ by {measured.base_difference:.1e} from the base alone"
        if request.kind == "full":
            what = f"the same rows differ by {measured.base_difference:.1e} when they run a second time"
        return [_mismatch(check, what)]
    what = f"{_what_ran(request, measured)}: largest difference {measured.difference:.1e} (limit {bound:.1e})"
    rows = [_row(check, Outcome.PASS, Finding.PROBE_PASSED, f"{what}, in float32. {_HALF_PRECISION}")]
    return rows if request.kind == "full" else [*rows, _effect(request, measured, noise)]


def _what_ran(request: ProbeRequest, measured: Measured) -> str:
    if request.kind == "full":
        return f"{measured.rows // 2} rows, each run twice"
    if request.mode is Mode.MERGED:
        return f"{measured.rows} rows on merged weights"
    return f"{measured.rows} rows of base and adapter in one batch"


def failure(what: str, reason: str) -> Row:
    """One side could not load the adapter at all."""
    todo = "Load it with PEFT on the same base model; if that works, report it with this digest."
    return _row(CHECK, Outcome.FAIL, Finding.PROBE_FAILED, f"{what}: {reason.strip()[:400]}", todo)


def _effect(request: ProbeRequest, measured: Measured, noise: float) -> Row:
    kind = "to the base" if measured.from_base else "between texts"
    if not request.expect_effect:
        # the note on the zero weights is in the report already
        what = f"none, as the weights say: largest difference {kind} {measured.effect:.1e}"
        return _row(_EFFECT, Outcome.PASS, Finding.OK, what)
    if measured.effect > noise:
        from_what = "from the base's" if measured.from_base else kind
        return _row(_EFFECT, Outcome.PASS, Finding.OK, f"the output differs {from_what} by up to {measured.effect:.1e}")
    same = "The output equals the base's" if measured.from_base else "The scores are the same for every text"
    what = f"{same}: largest difference {measured.effect:.1e} (noise {noise:.1e}), in the reference too."
    todo = "Check that training ran and that the trained weights were saved."
    return _row(_EFFECT, Outcome.NOTE, Finding.NO_EFFECT, what, todo)


def _mismatch(check: str, what: str) -> Row:
    todo = "Check rank, alpha and patterns in adapter_config.json; if they are right, report it with this digest."
    return _row(check, Outcome.FAIL, Finding.PROBE_MISMATCH, f"{what[0].upper()}{what[1:]}.", todo)


def _row(check: str, outcome: Outcome, code: Finding, found: str, todo: str = "") -> Row:
    return Row(check=check, outcome=outcome, code=code, found=found, todo=todo)


def _largest(some: Outputs, others: Outputs) -> float:
    for one, other in zip(some, others, strict=True):
        if one.shape != other.shape:
            raise ValueError(f"an output has shape {one.shape}, expected is {other.shape}")
    return max((float(np.abs(one - other).max()) for one, other in zip(some, others, strict=True)), default=0.0)


def _spread(outputs: Outputs) -> float:
    """Largest difference of one value between texts, or between tokens."""
    values = np.concatenate([np.atleast_2d(one) for one in outputs])
    return float(np.ptp(values, axis=0).max())
