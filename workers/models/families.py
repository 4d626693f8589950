"""Which transformers class serves a configuration, and what differs between families."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wire.errors import Code, ShoalError
from wire.jobs import Task

ENCODERS = frozenset(
    {"bert", "roberta", "xlm-roberta", "camembert", "distilbert", "mpnet", "electra", "modernbert", "deberta-v2"}
)
DECODERS = frozenset(
    {"llama", "qwen2", "qwen3", "mistral", "gemma", "gemma2", "gemma3_text", "phi", "phi3", "gpt2", "gpt_neox",
     "olmo2", "smollm3", "granite", "starcoder2", "stablelm"}
)  # fmt: skip
ENCODER_HALVES = frozenset({"t5", "mt5"})
"""Families of two halves of which the encoder alone is served."""

_OFFSET_FAMILIES = frozenset({"roberta", "xlm-roberta", "camembert", "mpnet"})
"""Position ids of these start after the padding id, so their table has that many unusable rows."""

HEAD_CLASSES = {
    "ForSequenceClassification": Task.CLASSIFY,
    "ForTokenClassification": Task.TOKEN_CLASSIFY,
}
"""Endings of the names of transformers' classes with a task head that is served."""


def is_generative(config: Any, path: Path) -> bool:
    """Whether the model continues texts: a decoder that neither sentence-transformers files nor a head of its own make
    an encoder."""
    return config.model_type in DECODERS and not (path / "modules.json").exists() and own_head_task(config) is None


def own_head_task(config: Any) -> Task | None:
    """The task of the head that the model's own checkpoint has, if it has one."""
    for name in config.architectures or []:
        for ending, task in HEAD_CLASSES.items():
            if name.endswith(ending):
                return task
    return None


def body_class(config: Any, path: Path) -> Any:
    """The transformers class whose module paths adapters name: that of the body for encoders, with the language head
    for generative models. Raises ``ShoalError(MODEL_UNLOADABLE)`` for a family that is not served."""
    import transformers

    if config.model_type in ENCODER_HALVES:
        return getattr(transformers, type(config).__name__.removesuffix("Config") + "EncoderModel")
    if is_generative(config, path):
        return transformers.AutoModelForCausalLM
    if config.model_type in ENCODERS | DECODERS:
        return transformers.AutoModel
    raise ShoalError(
        Code.MODEL_UNLOADABLE,
        f"Models of type {config.model_type!r} are not served.",
        hint=f"Served are {', '.join(sorted(ENCODERS | DECODERS | ENCODER_HALVES))}.",
    )


def build_empty(kind: Any, config: Any) -> Any:
    """An instance of a transformers class without weights, on the meta device."""
    import torch

    with torch.device("meta"):
        return kind.from_config(config) if hasattr(kind, "from_config") else kind(config)


def head_labels(config: Any) -> tuple[list[str], str]:
    """(labels in order of the outputs, problem type) of a checkpoint with a head, as transformers takes them."""
    names = {int(number): str(label) for number, label in config.id2label.items()}
    labels = [names.get(number, f"LABEL_{number}") for number in range(config.num_labels)]
    return labels, config.problem_type or "single_label_classification"


def most_tokens(config: Any, described: int | None) -> int:
    """The longest input in tokens: the smaller of what the model's authors set and what its positions allow."""
    # T5 has relative positions; n_positions is the length it was trained with
    positions = int(getattr(config, "max_position_embeddings", 0) or getattr(config, "n_positions", 0) or 512)
    if config.model_type in _OFFSET_FAMILIES:
        positions -= (config.pad_token_id or 0) + 1
    return min(described or positions, positions)
