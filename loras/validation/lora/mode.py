"""How a version can be served, and why: from slots beside others, or from a copy of the base's weights."""

from __future__ import annotations

from dataclasses import dataclass

from loras.validation.findings import passed, some
from loras.validation.lora.whole import Placed
from wire.registry import Mode
from wire.reports import Row


@dataclass(frozen=True, slots=True)
class Serving:
    """The mode and its reason in words."""

    mode: Mode
    reason: str


def decide_mode(placed: Placed) -> Serving:
    """``packed`` unless something of the adapter cannot be expressed by a slot's A and B and a head per row."""
    aligned = placed.headed.intended.aligned
    reasons = []
    magnitudes = aligned.paired.declared.sorted.magnitudes
    if magnitudes:
        reasons.append(f"DoRA scales the weights of {len(magnitudes)} modules")
    biases = [name for name in placed.replaced if name.endswith(".bias")]
    whole = [name for name in placed.replaced if not name.endswith(".bias")]
    if whole:
        reasons.append(f"{len(whole)} weights of the base are replaced ({some(whole)})")
    if biases:
        reasons.append(f"{len(biases)} biases of the base are replaced ({some(biases)})")
    packable = set(aligned.manifest.packable)
    beyond = [path for path in aligned.paths.values() if path not in packable]
    if beyond:
        reasons.append(f"{len(beyond)} modules have no slots ({some(beyond)})")
    if reasons:
        why = "; ".join(reasons)
        return Serving(Mode.MERGED, f"{why}: it is served from a copy of the base's weights, loaded when it is used.")
    if placed.headed.tensors:
        why = "Plain LoRA on linear layers with a head of its own: it is served from slots, in mixed batches."
        return Serving(Mode.PACKED, why)
    return Serving(Mode.PACKED, "Plain LoRA on linear layers: it is served from slots, in mixed batches.")


def check_mode(found: Serving) -> list[Row]:
    """The mode in the report, with its reason."""
    return [passed("Serving mode", f"{found.mode}: {found.reason}")]
