"""What each tensor's key says it is, once the wrappers that training code leaves in keys are taken off."""

from __future__ import annotations

import re
from dataclasses import dataclass

from loras.validation.header import Header, Tensor

_LORA = re.compile(
    r"(?P<module>.+)\.lora_(?P<side>[AB])(?:\.(?P<adapter>(?!weight$|bias$)[^.]+))?\.(?P<what>weight|bias)"
)
_EMBEDDING = re.compile(r"(?P<module>.+)\.lora_embedding_[AB](?:\.[^.]+)?")
_MAGNITUDE = re.compile(r"(?P<module>.+)\.lora_magnitude_vector(?:\.[^.]+)?(?:\.weight)?")
# leading parts that wrappers add; `base_model.model` is PEFT's own and stands once in a plain file
_LEADING = re.compile(r"^(?:base_model\.model\.|module\.|_orig_mod\.|_fsdp_wrapped_module\.)")
_INNER = re.compile(r"(?:^|(?<=\.))(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
_HEADS = frozenset({"classifier", "score", "qa_outputs", "pre_classifier", "classification_head"})
_PLAIN_PREFIX = "base_model.model."


@dataclass(frozen=True, slots=True)
class Pair:
    """The two matrices of one module; ``None`` where one is missing. ``module`` is free of wrappers."""

    module: str
    a: Tensor | None
    b: Tensor | None


@dataclass(frozen=True, slots=True)
class Sorted:
    """All tensors by kind. ``adapters`` are adapter names found in keys (``default``), ``renamed`` what was taken
    off keys, as text for people; ``full`` are tensors that belong to no LoRA matrix, by wrapper-free name."""

    pairs: tuple[Pair, ...]
    embeddings: tuple[str, ...]
    magnitudes: tuple[str, ...]
    lora_biases: tuple[str, ...]
    biases: tuple[str, ...]
    full: dict[str, Tensor]
    adapters: tuple[str, ...]
    renamed: tuple[str, ...]
    doubled: tuple[str, ...]

    @property
    def heads(self) -> list[str]:
        """Names of whole weights that belong to a task's head."""
        return [name for name in self.full if not _HEADS.isdisjoint(name.split("."))]


def sort_tensors(header: Header) -> Sorted:
    """Every tensor of the file in exactly one of the kinds of ``Sorted``."""
    sides: dict[str, dict[str, Tensor]] = {}
    embeddings, magnitudes, lora_biases, biases, doubled = [], [], [], [], []
    full: dict[str, Tensor] = {}
    by_name: dict[str, Tensor] = {}
    adapters: set[str] = set()
    renamed: set[str] = set()
    for tensor in header.tensors:
        name = _unwrapped(tensor.name, renamed)
        if match := _LORA.fullmatch(name):
            if match["adapter"]:
                adapters.add(match["adapter"])
            if match["what"] == "bias":
                lora_biases.append(name)
                continue
            found = sides.setdefault(match["module"], {})
            if match["side"] in found:
                doubled.append(tensor.name)
            found[match["side"]] = tensor
        elif _EMBEDDING.fullmatch(name):
            embeddings.append(name)
        elif _MAGNITUDE.fullmatch(name):
            magnitudes.append(name)
        elif name.endswith(".bias") and ".modules_to_save." not in name:
            biases.append(name)
            by_name[name] = tensor
        else:
            full[name] = tensor
    # the bias of a whole layer, such as a classifier, belongs to its weight
    for name in [name for name in biases if f"{name.removesuffix('.bias')}.weight" in full]:
        biases.remove(name)
        full[name] = by_name[name]
    if adapters:
        renamed.add(f"adapter name {', '.join(sorted(adapters))!r}")
    pairs = tuple(Pair(module, side.get("A"), side.get("B")) for module, side in sorted(sides.items()))
    return Sorted(
        pairs=pairs,
        embeddings=tuple(embeddings),
        magnitudes=tuple(magnitudes),
        lora_biases=tuple(lora_biases),
        biases=tuple(biases),
        full=full,
        adapters=tuple(sorted(adapters)),
        renamed=tuple(sorted(renamed)),
        doubled=tuple(doubled),
    )


def _unwrapped(key: str, renamed: set[str]) -> str:
    """``key`` without wrappers; adds to ``renamed`` what was not as PEFT writes it."""
    name = key
    taken: list[str] = []
    while match := _LEADING.match(name):
        taken.append(match[0])
        name = name[match.end() :]
    inner = sorted(set(_INNER.findall(name)))
    name = _INNER.sub("", name)
    if taken.count(_PLAIN_PREFIX) == 0:
        renamed.add("the missing prefix 'base_model.model.'")
    if taken.count(_PLAIN_PREFIX) > 1:
        renamed.add("the doubled prefix 'base_model.model.'")
    for part in [*taken, *inner]:
        if part != _PLAIN_PREFIX:
            renamed.add(f"the wrapper {part!r}")
    return name
