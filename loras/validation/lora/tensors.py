"""What each tensor's key says it is, once the wrappers that training code leaves in keys are taken off."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from loras.validation.weights.header import Header, Tensor

_LORA = re.compile(
    r"(?P<module>.+)\.lora_(?P<side>[AB])(?:(?:\.(?P<adapter>(?!weight$|bias$)[^.]+))?\.(?P<what>weight|bias))?"
)
_EMBEDDING = re.compile(r"(?P<module>.+)\.lora_embedding_[AB](?:\.[^.]+)?")
_MAGNITUDE = re.compile(r"(?P<module>.+)\.lora_magnitude_vector(?:\.[^.]+)?(?:\.weight)?")
# leading parts that wrappers add, and the attributes that held the PEFT model while it was trained;
# `base_model.model` is PEFT's own and stands once in a plain file
_LEADING = re.compile(
    r"^(?:base_model\.model\.|module\.|_orig_mod\.|_fsdp_wrapped_module\.|(?:[^.]+\.)+?(?=base_model\.model\.))"
)
_INNER = re.compile(r"(?:^|(?<=\.))(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
# PEFT's own names for a layer under its matrices and for a module that was trained whole
_BASE_LAYER = re.compile(r"\.base_layer\.(?=(?:weight|bias)$)")
_SAVED = re.compile(r"\.modules_to_save\.(?:(?!weight$|bias$)[^.]+\.)?")
_ORIGINAL = ".original_module."
# as loralib, the first implementation of LoRA, writes them
_BARE = (".lora_A", ".lora_B")
_PLAIN_PREFIX = "base_model.model."


@dataclass(frozen=True, slots=True)
class Pair:
    """The two matrices of one module; ``None`` where one is missing. ``module`` is free of wrappers."""

    module: str
    a: Tensor | None
    b: Tensor | None


@dataclass(frozen=True, slots=True)
class Sorted:
    """All tensors by kind, under wrapper-free names.

    ``adapters`` are adapter names found in keys (``default``), ``renamed`` what was taken off keys, as text for people.
    ``magnitudes`` is keyed by module; ``biases`` are those whose weight is not in the file, ``full`` all other tensors
    that belong to no LoRA matrix. ``doubled`` are keys that mean the same tensor as another.
    """

    pairs: tuple[Pair, ...]
    embeddings: tuple[str, ...]
    magnitudes: dict[str, Tensor]
    lora_biases: tuple[str, ...]
    biases: dict[str, Tensor]
    full: dict[str, Tensor]
    adapters: tuple[str, ...]
    renamed: tuple[str, ...]
    doubled: tuple[str, ...]

    @property
    def whole(self) -> dict[str, Tensor]:
        """Every tensor that takes the place of one of the base model's, or belongs to a head."""
        return self.full | self.biases


@dataclass(slots=True)
class _Sorting:
    sides: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    embeddings: list[str] = field(default_factory=list)
    magnitudes: dict[str, Tensor] = field(default_factory=dict)
    lora_biases: list[str] = field(default_factory=list)
    whole: dict[str, Tensor] = field(default_factory=dict)
    saved: dict[str, Tensor] = field(default_factory=dict)
    doubled: list[str] = field(default_factory=list)
    adapters: set[str] = field(default_factory=set)

    def take(self, name: str, tensor: Tensor) -> None:
        """Put ``tensor`` where its wrapper-free ``name`` says."""
        if match := _LORA.fullmatch(name):
            if match["adapter"]:
                self.adapters.add(match["adapter"])
            if match["what"] == "bias":
                self.lora_biases.append(name)
                return
            self._keep(self.sides.setdefault(match["module"], {}), match["side"], tensor)
        elif _EMBEDDING.fullmatch(name):
            self.embeddings.append(name)
        elif match := _MAGNITUDE.fullmatch(name):
            self._keep(self.magnitudes, match["module"], tensor)
        elif _SAVED.search(name):
            self._keep(self.saved, _SAVED.sub(".", name), tensor)
        else:
            self._keep(self.whole, _BASE_LAYER.sub(".", name), tensor)

    def _keep(self, into: dict[str, Tensor], key: str, tensor: Tensor) -> None:
        if key in into:
            self.doubled.append(tensor.name)
        into[key] = tensor


def sort_tensors(header: Header) -> Sorted:
    """Every tensor of the file in exactly one of the kinds of ``Sorted``."""
    sorting = _Sorting()
    renamed: set[str] = set()
    for tensor in header.tensors:
        name = _unwrapped(tensor.name, renamed)
        if _ORIGINAL in name:
            renamed.add("the untrained copies 'original_module'")
        else:
            sorting.take(name, tensor)
            if name.endswith(_BARE):
                renamed.add("the missing ending '.weight'")
    if sorting.adapters:
        renamed.add(f"adapter name {', '.join(sorted(sorting.adapters))!r}")
    # with trained biases PEFT writes those of a module that was trained whole twice, under two names
    whole = sorting.saved | sorting.whole
    # the bias of a whole layer, such as a classifier, belongs to its weight
    alone = {name for name in whole if name.endswith(".bias") and f"{name.removesuffix('.bias')}.weight" not in whole}
    return Sorted(
        pairs=tuple(Pair(module, side.get("A"), side.get("B")) for module, side in sorted(sorting.sides.items())),
        embeddings=tuple(sorting.embeddings),
        magnitudes=sorting.magnitudes,
        lora_biases=tuple(sorting.lora_biases),
        biases={name: tensor for name, tensor in whole.items() if name in alone},
        full={name: tensor for name, tensor in whole.items() if name not in alone},
        adapters=tuple(sorted(sorting.adapters)),
        renamed=tuple(sorted(renamed)),
        doubled=tuple(sorting.doubled),
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
