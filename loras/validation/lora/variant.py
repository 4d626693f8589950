"""Which kind of adapter it is, and whether slots can express it."""

from __future__ import annotations

from dataclasses import dataclass

from loras.validation.findings import clipped, failed, noted, passed, shown, some
from loras.validation.lora.configuration import Configuration
from loras.validation.lora.tensors import Sorted
from loras.validation.weights.header import Header
from wire.reports import Finding, Row

CHECK = "Kind of adapter"
_VARIANT = "Configuration keys"

# each changes the output in a way that A and B alone cannot express
_CHANGES_OUTPUT = (
    "alora_invocation_tokens", "arrow_config", "kasa_config", "layer_replication", "lora_bias", "monteclora_config",
    "target_parameters", "trainable_token_indices", "use_bdlora", "use_qalora", "velora_config",
)  # fmt: skip
# initialisations that also change the base's weights: A and B fit only the changed base
_CHANGES_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
_OTHER_TYPES = {
    "ia3_l": "IA3", "lora_E": "ADALORA", "ranknum": "ADALORA", "hada_w1_a": "LOHA", "lokr_w1": "LOKR",
    "oft_r": "OFT", "oft_R": "OFT", "boft_R": "BOFT", "vera_lambda_b": "VERA", "prompt_embeddings": "PROMPT_TUNING",
}  # fmt: skip
_RETRAIN = "Train it as plain LoRA (peft_type LORA), or merge it and serve the merged model."


@dataclass(frozen=True, slots=True)
class Declared:
    """The configuration beside the tensors, before a base model is chosen."""

    configuration: Configuration
    header: Header
    sorted: Sorted

    @property
    def type(self) -> str:
        """The kind: as the tensors say, then as the configuration says, else "" when neither does."""
        for tensor in self.header.tensors:
            for marker, kind in _OTHER_TYPES.items():
                if marker in tensor.name:
                    return kind
        return self.configuration.peft_type.upper() or ("LORA" if self.sorted.pairs else "")


def check_type(found: Declared) -> list[Row]:
    """LoRA and nothing else."""
    declared, kind = found.configuration.peft_type, found.type
    if not kind:
        names = some(tensor.name for tensor in found.header.tensors)
        what = f"No LoRA matrices in {len(found.header.tensors)} tensors: {names or 'none at all'}."
        return [failed(CHECK, Finding.TYPE_UNSUPPORTED, what, _RETRAIN)]
    if kind != "LORA":
        return [failed(CHECK, Finding.TYPE_UNSUPPORTED, f"The adapter is {clipped(kind)}, not LoRA.", _RETRAIN)]
    if not found.sorted.pairs:
        return _no_matrices(found)
    if not declared:
        what = "peft_type is absent; the tensors are LoRA matrices."
        return [noted(CHECK, Finding.CONFIG_INFERRED, what, "Nothing to do.")]
    return [passed(CHECK, f"LoRA, {len(found.sorted.pairs)} modules")]


def _no_matrices(found: Declared) -> list[Row]:
    sorted_out = found.sorted
    if sorted_out.full:
        what = f"The file holds {len(sorted_out.full)} whole weights and no LoRA matrix: {some(sorted_out.full)}."
        todo = "Save the PEFT model, not the base model: peft_model.save_pretrained(folder)."
        return [failed(CHECK, Finding.FULL_MODEL, what, todo)]
    if sorted_out.embeddings or sorted_out.biases or sorted_out.lora_biases or sorted_out.magnitudes:
        return []  # said by the checks on those
    what = "The file holds no tensor, so the adapter would do nothing."
    todo = "Save the adapter again after training: peft_model.save_pretrained(folder)."
    return [failed(CHECK, Finding.ADAPTER_INERT, what, todo)]


def check_dora(found: Declared) -> list[Row]:
    """DoRA (arXiv:2402.09353) scales the base's weight too; the flag and the magnitudes belong together."""
    magnitudes = found.sorted.magnitudes
    if found.configuration.raw.get("use_dora"):
        if magnitudes or not found.sorted.pairs:
            return []
        what = "use_dora is set, but the file has no lora_magnitude_vector."
        todo = "Save the adapter again with its magnitudes, or set use_dora to false if it was trained without."
        return [failed(CHECK, Finding.UNPAIRED, what, todo)]
    if magnitudes:
        named = some(tensor.name for tensor in magnitudes.values())
        what = f"{len(magnitudes)} DoRA magnitude vectors, but use_dora is not set: {named}."
        todo = 'Set "use_dora": true as it was in training; the output is wrong without it.'
        return [failed(CHECK, Finding.UNDECLARED_DORA, what, todo)]
    return []


def check_bias(found: Declared) -> list[Row]:
    """``bias``: what it says against the trained biases that are there; the tensors decide."""
    bias = found.configuration.raw.get("bias")
    if found.sorted.lora_biases:
        what = f"{len(found.sorted.lora_biases)} biases of lora_B (lora_bias): {some(found.sorted.lora_biases)}."
        return [failed(_VARIANT, Finding.VARIANT_UNSUPPORTED, what, 'Train with "lora_bias": false.')]
    tensors = found.sorted.biases
    if tensors and bias in (None, "none"):
        what = (
            f"bias is {shown(bias)}, but the file has {len(tensors)} trained biases: {some(tensors)}. They are served."
        )
        return [noted(_VARIANT, Finding.CONFIG_INFERRED, what, "Check bias against the training.")]
    if not tensors and bias not in (None, "none"):
        what = f"bias is {shown(bias)}, but the file has no bias tensor; it changes nothing."
        return [noted(_VARIANT, Finding.CONFIG_INFERRED, what, "Check that no bias was trained.")]
    return []


def check_embeddings(found: Declared) -> list[Row]:
    """LoRA on an embedding is another product than LoRA on a linear layer."""
    if not found.sorted.embeddings:
        return []
    what = f"LoRA on an embedding layer: {some(found.sorted.embeddings)}."
    return [failed(_VARIANT, Finding.VARIANT_UNSUPPORTED, what, "Take embeddings out of target_modules.")]


def check_keys(found: Declared) -> list[Row]:
    """Keys that change the output, and keys this version of PEFT does not have."""
    raw = found.configuration.raw
    rows = []
    for key in _CHANGES_OUTPUT:
        if raw.get(key):
            what = f"{key} is {shown(raw[key])}, which changes the output beyond A and B."
            rows.append(failed(_VARIANT, Finding.VARIANT_UNSUPPORTED, what, f"Train without {key}."))
    start = raw.get("init_lora_weights")
    if isinstance(start, str) and start.lower().startswith(_CHANGES_BASE):
        what = f"init_lora_weights is {shown(start)}, which changed the base's weights before training."
        todo = "Save it with save_pretrained(..., path_initial_model_for_weight_conversion=...) as plain LoRA."
        rows.append(failed(_VARIANT, Finding.VARIANT_UNSUPPORTED, what, todo))
    return rows + _unknown_keys(found.configuration)


def check_single(found: Declared) -> list[Row]:
    """One adapter in one file."""
    doubled = found.sorted.doubled
    if len(found.sorted.adapters) <= 1 and not doubled:
        return []
    names = some(found.sorted.adapters, limit=6) or "no names"
    what = f"The file holds more than one adapter ({names}); {len(doubled)} tensors twice: {some(doubled)}."
    todo = "Save each adapter alone: save_pretrained(folder, selected_adapters=[name])."
    return [failed(CHECK, Finding.SEVERAL_ADAPTERS, what, todo)]


def check_saved_modules(found: Declared) -> list[Row]:
    """``modules_to_save`` that are not in the file."""
    wanted = found.configuration.modules_to_save
    absent = [name for name in wanted if not any(f".{name}." in f".{key}" for key in found.sorted.whole)]
    # PEFT lists both names of a classifier's head, whichever the model has; the head is judged with the task
    if found.configuration.task_type.upper() in ("SEQ_CLS", "TOKEN_CLS") or len(absent) < len(wanted):
        absent = [name for name in absent if name not in ("classifier", "score")]
    if not absent:
        return []
    what = f"modules_to_save lists {some(absent)}, but the file has no such tensor; the base's own is used."
    return [noted(_VARIANT, Finding.MODULES_TO_SAVE_ABSENT, what, "Check that they were not trained.")]


def _unknown_keys(configuration: Configuration) -> list[Row]:
    unset: tuple[object, ...] = (None, False, 0, "", [], {})
    odd = [key for key in configuration.unknown if configuration.raw[key] not in unset]
    # PEFT switches a variant on with `use_…: true` or with a filled `…_config`
    acting = [key for key in odd if key.startswith("use_") or key.endswith("_config")]
    if acting:
        named = some(f"{key} = {shown(configuration.raw[key])}" for key in acting)
        todo = "Train without it, or ask for this variant to be supported."
        return [failed(_VARIANT, Finding.VARIANT_UNSUPPORTED, f"Unknown switches are set: {named}.", todo)]
    if configuration.unknown:
        what = f"{len(configuration.unknown)} unknown keys change nothing: {some(configuration.unknown, limit=8)}."
        return [noted(_VARIANT, Finding.UNKNOWN_KEYS_INERT, what, "Nothing to do.")]
    return [passed(_VARIANT, f"{len(configuration.raw)} keys, none changes the output beyond A and B")]


VARIANT_CHECKS = (
    check_type, check_dora, check_bias, check_embeddings, check_keys, check_single, check_saved_modules,
)  # fmt: skip
