"""Lines the modules of an upload up with a base model's: which prefix to take off or put on, what then matches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from loras.validation.findings import clipped, shape_text
from loras.validation.lora.pairs import Paired
from loras.validation.lora.tensors import Pair
from wire.manifest import Manifest

# `0.auto_model.`, `bert.`, `base_model.roberta.encoder.`: no task model nests its base deeper
_DEEPEST_PREFIX = 3
_MOST_PREFIXES = 24


@dataclass(frozen=True, slots=True)
class Aligned:
    """Upload and base, module by module. ``paths`` maps the upload's module names to the base's paths, for those
    that exist there; ``removed`` and ``added`` are the prefixes in which they differ."""

    paired: Paired
    manifest: Manifest
    paths: dict[str, str]
    removed: str
    added: str

    @property
    def unmatched(self) -> list[str]:
        """Modules of the upload that the base does not have."""
        return [pair.module for pair in self.paired.pairs if pair.module not in self.paths]

    @property
    def misfits(self) -> list[str]:
        """Matched modules whose matrices do not fit the base's weight, as text."""
        weights = {module.path: module.weight for module in self.manifest.modules if module.kind == "linear"}
        found = []
        for pair in self.paired.pairs:
            path = self.paths.get(pair.module)
            if path is None or pair.a is None or pair.b is None or path not in weights:
                continue
            outputs, inputs = weights[path]
            if pair.a.shape[1] != inputs or pair.b.shape[0] != outputs:
                has = f"A {shape_text(pair.a.shape)}, B {shape_text(pair.b.shape)}"
                found.append(f"{clipped(path)}: {has}, the base has {inputs} inputs and {outputs} outputs")
        return found

    @property
    def fits(self) -> bool:
        """Whether every module exists in the base with the right shape."""
        return bool(self.paths) and not self.unmatched and not self.misfits


def align(paired: Paired, manifest: Manifest) -> Aligned:
    """The one change of prefix under which most modules of the upload exist in the base; none where it ties."""
    paths = {module.path for module in manifest.modules}
    best = (_matching(paired.pairs, "", "", paths), "", "")
    for removed in _leading(pair.module for pair in paired.pairs):
        for added in _leading(paths):
            matching = _matching(paired.pairs, removed, added, paths)
            if len(matching) > len(best[0]):
                best = (matching, removed, added)
    return Aligned(paired, manifest, *best)


def _matching(pairs: tuple[Pair, ...], removed: str, added: str, paths: set[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        path = added + pair.module.removeprefix(removed)
        if path in paths:
            found[pair.module] = path
    # two names of the upload for one module of the base are no renaming
    return found if len(set(found.values())) == len(found) else {}


def _leading(names: Iterable[str]) -> list[str]:
    """Prefixes of up to three parts that are before any name, shortest first, the empty one included."""
    counted: dict[str, int] = {"": 0}
    for name in names:
        parts = name.split(".")
        for depth in range(1, min(_DEEPEST_PREFIX, len(parts) - 1) + 1):
            if any(part.isdecimal() for part in parts[1 : depth + 1]):
                break  # the list of layers is no wrapper: another name for it is another model
            prefix = ".".join(parts[:depth]) + "."
            counted[prefix] = counted.get(prefix, 0) + 1
    common = sorted(counted, key=lambda prefix: (prefix.count("."), -counted[prefix]))
    return common[:_MOST_PREFIXES]
