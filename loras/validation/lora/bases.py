"""Which registered base model the adapter is for. Nothing is ever fetched, and no name is believed alone."""

from __future__ import annotations

from loras.validation.findings import Refused, asked, clipped, failed, passed, some
from loras.validation.lora.alignment import Aligned, align
from loras.validation.lora.pairs import Paired
from wire.manifest import Manifest
from wire.reports import Finding, Question, Row

CHECK = "Base model"


def choose_base(paired: Paired, manifests: list[Manifest], wanted: str) -> Aligned:
    """The base named by the uploader, else by the configuration. Raises ``Refused``, with a question where one of
    the registered bases may be meant."""
    named = wanted or paired.configuration.base_model
    for manifest in manifests:
        if manifest.id == named:
            return align(paired, manifest)
    fitting = [manifest.id for manifest in manifests if align(paired, manifest).fits]
    said = f"{clipped(named)!r} is not a registered base model" if named else "the configuration names no base model"
    if fitting:
        text = f"Which base model was this adapter trained on? It fits {some(fitting, limit=6)}."
        row = asked(CHECK, Finding.BASE_MODEL_UNKNOWN, f"{said}.", "Choose the base model it was trained on.")
        raise Refused(row, question=Question(field="base_model", text=text, choices=fitting))
    known = some((manifest.id for manifest in manifests), limit=6) or "none"
    found = f"{said}, and no registered one fits its shapes (registered: {known})."
    todo = "Have its base model registered, or train on a registered one."
    raise Refused(failed(CHECK, Finding.BASE_MODEL_UNKNOWN, found[0].upper() + found[1:], todo))


def check_base(found: Aligned) -> list[Row]:
    """The base that everything below is compared with."""
    return [passed(CHECK, f"{found.manifest.id}, {len(found.manifest.modules)} modules")]
