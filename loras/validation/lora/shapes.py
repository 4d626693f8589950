"""Names and shapes of an upload against its base model's."""

from __future__ import annotations

import re
from dataclasses import dataclass

from loras.validation.findings import clipped, failed, noted, passed, some
from loras.validation.lora.alignment import Aligned, align
from loras.validation.lora.configuration import Configuration, layer_expression
from wire.manifest import Manifest
from wire.reports import Finding, Row

CHECK = "Modules exist in the base"
_SHAPES = "Shapes fit the base"
_TARGETS = "Target modules"


@dataclass(frozen=True, slots=True)
class Compared:
    """One upload beside its base, and the other bases it may have been meant for."""

    aligned: Aligned
    manifests: list[Manifest]

    @property
    def configuration(self) -> Configuration:
        return self.aligned.paired.configuration


def check_names(found: Compared) -> list[Row]:
    """How many of the modules exist in the base."""
    aligned = found.aligned
    total, missing = len(aligned.paired.pairs), aligned.unmatched
    if not total or aligned.misfits:
        return []
    todo = f"Train on {aligned.manifest.id}, or name the base model it was trained on.{_likely(found)}"
    examples = f"the base has none of: {some(map(clipped, missing))}"
    if len(missing) == total:
        what = f"None of {total} modules is in {aligned.manifest.id}, so the adapter would do nothing; {examples}."
        return [failed(CHECK, Finding.ADAPTER_INERT, what, todo)]
    if missing:
        what = f"{total - len(missing)}/{total} modules match {aligned.manifest.id}; {examples}."
        return [failed(CHECK, Finding.PARTIAL_MATCH, what, todo)]
    return [passed(CHECK, f"{total}/{total} modules match {aligned.manifest.id}")]


def check_renamed(found: Compared) -> list[Row]:
    """What was taken off or put on the keys to find their modules."""
    aligned = found.aligned
    changes = list(aligned.paired.declared.sorted.renamed)
    if aligned.removed:
        changes.append(f"the prefix {aligned.removed!r}")
    text = some(changes, limit=6)
    if aligned.added:
        text = f"{text + '; ' if text else ''}put on: {aligned.added!r}"
    if not text or not aligned.paths:
        return []
    return [noted("Key names", Finding.KEYS_NORMALISED, f"Taken off the keys: {text}.", "Nothing to do.")]


def check_shapes(found: Compared) -> list[Row]:
    """Inputs of A and outputs of B against the base's weights."""
    aligned = found.aligned
    misfits = aligned.misfits
    if misfits:
        beside = f" {len(aligned.unmatched)} more modules are not in it at all." if aligned.unmatched else ""
        what = f"{len(misfits)} modules do not fit {aligned.manifest.id}: {some(misfits)}.{beside}"
        todo = f"Train on {aligned.manifest.id}, or name the base model it was trained on.{_likely(found)}"
        return [failed(_SHAPES, Finding.SHAPE_MISMATCH, what, todo)]
    return [passed(_SHAPES, f"{len(aligned.paths)} modules")] if aligned.paths else []


def check_linear(found: Compared) -> list[Row]:
    """A and B multiply the input of a linear module; nothing else can take them."""
    linear = {module.path for module in found.aligned.manifest.modules if module.kind == "linear"}
    odd = [path for path in found.aligned.paths.values() if path not in linear]
    if not odd:
        return []
    todo = "Leave these modules out of target_modules."
    what = f"{len(odd)} modules are no linear layers that adapters can be served on: {some(odd)}."
    return [failed(_TARGETS, Finding.VARIANT_UNSUPPORTED, what, todo)]


def check_targets(found: Compared) -> list[Row]:
    """What target_modules says against the modules that are there; the tensors decide."""
    configuration = found.configuration
    names = sorted({path.rsplit(".", 1)[-1] for path in found.aligned.paths.values()})
    if not names:
        return []
    targets = configuration.target_modules
    listed = f"{len(found.aligned.paths)} modules, by their last name: {some(names, limit=12)}"
    if targets is None or isinstance(targets, str):
        said = "absent" if targets is None else repr(clipped(targets))
        what = f"target_modules is {said}; the tensors are for {listed}."
        return [noted(_TARGETS, Finding.TARGETS_RESOLVED, what, "Nothing to do.")]
    beyond = [module for module in found.aligned.paths if not _listed(module, targets)]
    if beyond:
        what = f"The file has matrices for modules that target_modules does not list: {some(beyond)}. They are served."
        return [noted(_TARGETS, Finding.TARGETS_RESOLVED, what, "Check target_modules against the training.")]
    return [passed(_TARGETS, listed)]


def check_layers(found: Compared) -> list[Row]:
    """``layers_to_transform``: PEFT ignores tensors of other layers, so they would be served by mistake."""
    configuration = found.configuration
    if configuration.layers is None:
        return []
    numbers = {module: _layer(module, configuration.layers_pattern) for module in found.aligned.paths}
    outside = [f"{module} (layer {number})" for module, number in numbers.items() if number not in configuration.layers]
    wanted = some(map(str, configuration.layers), limit=24)
    if outside:
        what = f"layers_to_transform is {wanted}, but the file has {len(outside)} modules of others: {some(outside)}."
        todo = "Use the configuration that was saved with these weights."
        return [failed("Layers", Finding.CONFIG_INVALID, what, todo)]
    return [passed("Layers", f"only {wanted}, as layers_to_transform says")]


def _likely(found: Compared) -> str:
    fitting = [manifest.id for manifest in found.manifests if align(found.aligned.paired, manifest).fits]
    if fitting:
        return f" It fits {some(fitting)}."
    widths = sorted({pair.a.shape[1] for pair in found.aligned.paired.pairs if pair.a and len(pair.a.shape) > 1})
    if not widths:
        return ""
    named = found.configuration.base_model
    said = f" Its configuration names {clipped(named)!r}." if named and named != found.aligned.manifest.id else ""
    return f" Its base has hidden size {widths[0]}.{said}"


def _listed(module: str, targets: tuple[str, ...]) -> bool:
    return any(module == target or module.endswith(f".{target}") for target in targets)


def _layer(module: str, patterns: tuple[str, ...]) -> int | None:
    """Layer number as PEFT reads it (peft.tuners.tuners_utils.check_target_module_exists)."""
    if not patterns:
        match = re.match(r".*?\.[^.]*\.(?P<layer>\d+)\.", module)
        return int(match["layer"]) if match else None
    for pattern in patterns:
        if match := re.match(layer_expression(pattern), module):
            return int(match["layer"])
    return None


SHAPE_CHECKS = (
    check_names, check_renamed, check_shapes, check_linear, check_targets, check_layers,
)  # fmt: skip
