"""Whether an adapter's numbers are finite and can change anything."""

from __future__ import annotations

from dataclasses import dataclass

from loras.validation.findings import noted
from loras.validation.lora.pairs import Paired
from loras.validation.weights.numbers import Count, judge_finite
from wire.reports import Finding, Row


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts by tensor name."""

    paired: Paired
    counts: dict[str, Count]

    @property
    def has_effect(self) -> bool:
        """Whether any module's scale · B · A, or any weight of the adapter's own, can be anything but the base's."""
        configuration, tensors = self.paired.configuration, self.paired.declared.sorted
        if tensors.magnitudes or tensors.biases or tensors.full:
            return True
        return any(
            self.counts[pair.a.name].nonzero
            and self.counts[pair.b.name].nonzero
            and configuration.pattern_alpha(pair.module) != 0
            for pair in self.paired.pairs
            if pair.a is not None and pair.b is not None
        )


def check_finite(found: Counted) -> list[Row]:
    """NaN and Inf by tensor and number."""
    return judge_finite(found.counts, sum(tensor.elements for tensor in found.paired.used))


def check_effect(found: Counted) -> list[Row]:
    """An adapter whose product is zero is the base model under another name."""
    if found.has_effect or not found.paired.pairs:
        return []
    zero = [pair.module for pair in found.paired.pairs if pair.b and not found.counts[pair.b.name].nonzero]
    what = f"lora_B is all zero in {len(zero)} of {len(found.paired.pairs)} modules; the output is the base's."
    if not zero:
        what = "The scale or every lora_A is zero; the output is the base's."
    todo = "Check that training ran and that the trained weights were saved."
    return [noted("Effect", Finding.NO_EFFECT, what, todo)]


NUMBER_CHECKS = (check_finite, check_effect)
