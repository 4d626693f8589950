"""Whole weights beside the LoRA matrices: those that take the place of the base's own, and those that fit nowhere."""

from __future__ import annotations

from dataclasses import dataclass

from loras.validation.files.vocabulary import name_tokens
from loras.validation.findings import clipped, failed, passed, shape_text, some
from loras.validation.lora.heads import Headed
from loras.validation.weights.header import Tensor
from wire.manifest import Manifest
from wire.reports import Finding, Row

CHECK = "Whole weights"
_EMBEDDINGS = ("word_embeddings", "embed_tokens", "wte", "tok_embeddings", "shared")
_OUTPUTS = ("lm_head", "embed_out")
_MATRIX = 2


@dataclass(frozen=True, slots=True)
class Misfit:
    """A whole weight of the upload that the base has in another shape (``wanted``), or not at all (``None``)."""

    name: str
    shape: tuple[int, ...]
    wanted: tuple[int, ...] | None

    @property
    def resized(self) -> bool:
        """Whether it is the base's vocabulary with other rows."""
        if self.wanted is None or len(self.shape) != _MATRIX or self.shape[1:] != self.wanted[1:]:
            return False
        return not {*_EMBEDDINGS, *_OUTPUTS}.isdisjoint(self.name.split("."))

    def __str__(self) -> str:
        wanted = "not in the base" if self.wanted is None else f"the base has {shape_text(self.wanted)}"
        return f"{clipped(self.name)} {shape_text(self.shape)} ({wanted})"


@dataclass(frozen=True, slots=True)
class Placed:
    """An adapter with everything in its place: ``replaced`` by the base's parameter name, and what fits nowhere."""

    headed: Headed
    replaced: dict[str, Tensor]
    misfits: tuple[Misfit, ...]


def place_whole(headed: Headed) -> Placed:
    """Line the whole weights up with the base's parameters, as its modules were lined up."""
    aligned = headed.intended.aligned
    parameters = _parameters(aligned.manifest)
    replaced: dict[str, Tensor] = {}
    misfits = []
    for name, tensor in aligned.paired.declared.sorted.whole.items():
        if name in headed.tensors:
            continue
        places = (aligned.added + name.removeprefix(aligned.removed), name)
        place = next((place for place in places if place in parameters), None)
        wanted = parameters[place] if place is not None else None
        if place is None or wanted is None or tensor.shape not in wanted or place in replaced:
            misfits.append(Misfit(name, tensor.shape, wanted[0] if wanted else None))
        else:
            replaced[place] = tensor
    return Placed(headed, replaced, tuple(misfits))


def check_whole(found: Placed) -> list[Row]:
    """What is replaced; what belongs nowhere is refused."""
    resized = [misfit for misfit in found.misfits if misfit.resized]
    other = [misfit for misfit in found.misfits if not misfit.resized]
    rows = []
    if resized:
        files, first = found.headed.intended.files, resized[0]
        vocabulary = first.wanted[0] if first.wanted else 0
        what = f"{some(map(str, resized))}.{name_tokens(files.companions, vocabulary, first.shape[0])}"
        todo = "Train without adding tokens (adapters share the base's vocabulary), or upload the merged model."
        rows.append(failed(CHECK, Finding.VOCAB_RESIZED, what, todo))
    if other:
        what = f"{len(other)} tensors are whole weights and fit nothing in the base: {some(map(str, other))}."
        todo = "Take them out of modules_to_save, or upload the merged model as a full fine-tune (kind full)."
        rows.append(failed(CHECK, Finding.FULL_WEIGHT_IN_ADAPTER, what, todo))
    if found.replaced and not rows:
        count, numbers = len(found.replaced), sum(tensor.elements for tensor in found.replaced.values())
        rows.append(passed(CHECK, f"{count} parameters of the base are replaced ({numbers:,} numbers): "
                                  f"{some(found.replaced)}"))  # fmt: skip
    return rows


def _parameters(manifest: Manifest) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Name and admissible shapes of each parameter of the base's modules."""
    parameters: dict[str, tuple[tuple[int, ...], ...]] = {}
    for module in manifest.modules:
        weight = tuple(module.weight)
        # GPT-2 stores the weights of its linear layers the other way round than it says
        stored = (weight[::-1],) if manifest.family == "gpt2" and module.kind == "linear" else ()
        parameters[f"{module.path}.weight"] = (*stored, weight) if module.path != "lm_head" else (weight,)
        if module.bias:
            parameters[f"{module.path}.bias"] = (weight[:1],)
    return parameters


WHOLE_CHECKS = (check_whole,)
