"""Tiny random models of every family on disk, and what plain transformers and PEFT make of a row."""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import Tensor

from tests.artifacts import RandomAdapter, random_adapter
from tests.unit.workers.conftest import WORDS
from wire.canonical import HeadHeader
from wire.jobs import Task
from wire.registry import ModelRecord
from workers.models import LoadedModel, ModelOptions, load_model
from workers.models.protocol import Vectors
from workers.packing.artifact import read_artifact

ENCODERS = ["bert", "roberta", "xlm-roberta", "distilbert", "mpnet", "modernbert", "deberta-v2", "t5"]
DECODERS = ["llama", "qwen2", "qwen3", "mistral", "gemma", "phi", "gpt2"]
_FROM_ONE = frozenset({"roberta", "xlm-roberta", "mpnet"})
"""Families whose padding id is 1."""
_SMALL: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 48,
    # wide enough that what a layer does shows in the output
    "initializer_range": 0.25,
}
_MORE: dict[str, dict[str, Any]] = {
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 48},
    "deberta-v2": {
        "relative_attention": True,
        "pos_att_type": ["c2p", "p2c"],
        "position_buckets": 8,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "position_biased_input": False,
        "type_vocab_size": 0,
    },
    "modernbert": {"global_attn_every_n_layers": 2, "local_attention": 8, "reference_compile": False},
    "t5": {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "feed_forward_proj": "gated-gelu"},
    "llama": {"num_key_value_heads": 2},
    "qwen2": {"num_key_value_heads": 2},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 8},
    "mistral": {"num_key_value_heads": 2, "sliding_window": 6},
    "gemma": {"num_key_value_heads": 2, "head_dim": 8},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_inner": 48, "n_positions": 48},
}
_RENAMED = frozenset({"distilbert", "t5", "gpt2"})
"""Families whose own names for the sizes are in ``_MORE``."""


def config_of(family: str, **more: Any) -> Any:
    """A tiny configuration."""
    from transformers import AutoConfig

    small = {"vocab_size": 40, "initializer_range": 0.25} if family in _RENAMED else _SMALL
    pad = 1 if family in _FROM_ONE else 0
    ids = {"pad_token_id": pad, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
    return AutoConfig.for_model(family, **(small | _MORE.get(family, {}) | ids | more))


def write_model(folder: Path, family: str, *, kind: Any = None, seed: int = 0, **more: Any) -> Path:
    """A random model of ``family`` as a folder: the class that embeds texts, or ``kind``, a ``…For<Task>`` class."""
    from transformers import AutoModel, T5EncoderModel

    torch.manual_seed(seed)
    config = config_of(family, **more)
    chosen: Any = kind or AutoModel
    model = T5EncoderModel(config) if kind is None and family == "t5" else chosen.from_config(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "bias" in name:  # or they would all be zero
                parameter.normal_(std=0.1)
    model.save_pretrained(folder)
    tokenizer_of(family).save(str(folder / "tokenizer.json"))
    if kind is None and family in DECODERS:
        write_pooling(folder, "lasttoken")
    return folder


def write_pooling(folder: Path, *modes: str, **settings: Any) -> None:
    """The sentence-transformers files for a pooling."""
    (folder / "1_Pooling").mkdir(exist_ok=True)
    pooling = {"pooling_mode": modes[0] if len(modes) == 1 else list(modes)} | settings
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    kinds = {"": "base.modules.transformer.Transformer", "1_Pooling": "sentence_transformer.modules.pooling.Pooling"}
    entries = [{"path": path, "type": f"sentence_transformers.{kind}"} for path, kind in kinds.items()]
    (folder / "modules.json").write_text(json.dumps(entries))


def tokenizer_of(family: str) -> Tokenizer:
    """Words to ids, with the special tokens that the family puts around a text and a pair."""
    words = ["<pad>", "<unk>"] if family not in _FROM_ONE else ["<unk>", "<pad>"]
    words += ["<s>", "</s>", *WORDS[4:], *"abcdefgh"]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(dict.fromkeys(words))}, "<unk>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pairs = {"bert": "$A:0 </s>:0 $B:1 </s>:1", "roberta": "$A:0 </s>:0 </s>:0 $B:0 </s>:0"}
    specials = [("<s>", 2), ("</s>", 3)]
    if family in DECODERS:
        tokenizer.post_processor = processors.TemplateProcessing("$A </s>", "$A $B:0 </s>:0", specials)
    elif family == "t5":
        tokenizer.post_processor = processors.TemplateProcessing("$A </s>", "$A:0 </s>:0 $B:0 </s>:0", specials)
    else:
        pair = pairs["bert" if family in ("bert", "deberta-v2") else "roberta"]
        tokenizer.post_processor = processors.TemplateProcessing("<s> $A </s>", f"<s>:0 {pair}", specials)
    return tokenizer


def load_family(folder: Path, **options: Any) -> LoadedModel:
    """The model in ``folder``, as a worker loads it."""
    record = ModelRecord("test/tiny", "", f"path:{folder}", [], "default", 48, 32, 0)
    return load_model(record, options=ModelOptions(**options))


def adapters_of(model: LoadedModel, count: int) -> list[RandomAdapter]:
    """Adapters of different ranks on different linear modules."""
    paths = sorted(path for path in model.adapters.shapes if "pooler" not in path and "lm_head" not in path)
    chosen = [paths, paths[::2], paths[1::3], paths[-2:]]
    return [
        random_adapter(
            model.adapters.shapes,
            {path: 1 + (3 * number + place) % 9 for place, path in enumerate(chosen[number % len(chosen)])},
            seed=number + 1,
            alpha=8.0,
            strength=1.0,
        )
        for number in range(count)
    ]


def with_head(adapter: RandomAdapter, task: Task, reference: Any, labels: int, problem: str = "") -> RandomAdapter:
    """The adapter with the head of ``reference``, a model of the ``…For<Task>`` class."""
    prefix = f"{reference.base_model_prefix}."
    tensors = {
        name: tensor.detach().clone() for name, tensor in reference.state_dict().items() if not name.startswith(prefix)
    }
    header = HeadHeader(task, [f"L{number}" for number in range(labels)], sorted(tensors))
    if problem:
        header = HeadHeader(task, header.labels, header.tensors, problem=problem)
    return dataclasses.replace(adapter, head=header, head_tensors=tensors)


def load(model: LoadedModel, adapter: RandomAdapter, folder: Path) -> str:
    """Make the adapter resident; returns its digest."""
    path = adapter.write_canonical(folder)
    model.load_adapter(adapter.digest, read_artifact(path, expected_digest=adapter.digest))
    return adapter.digest


def with_peft(module: Any, adapter: RandomAdapter, folder: Path, *, prefix: str = "") -> Any:
    """PEFT's model of ``module`` and the adapter, whose paths begin below ``prefix`` there."""
    from peft import PeftModel

    inside = RandomAdapter({prefix + path: part for path, part in adapter.parts.items()})
    with warnings.catch_warnings():
        # of the libraries among themselves, on Conv1D and on names that are on their way out
        warnings.simplefilter("ignore")
        return PeftModel.from_pretrained(module, str(inside.write_peft(folder))).eval()


def plain_model(folder: Path, family: str, kind: Any = None, **more: Any) -> Any:
    """Transformers' own model in ``folder``."""
    from transformers import AutoModel, T5EncoderModel

    chosen: Any = kind or (T5EncoderModel if family == "t5" else AutoModel)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return chosen.from_pretrained(folder, dtype=torch.float32, **more).eval()


def alone(module: Any, ids: Sequence[int], types: Sequence[int] | None = None) -> Any:
    """What a transformers model gives for one row that sees no padding."""
    row = torch.tensor([list(ids)])
    more = {} if types is None else {"token_type_ids": torch.tensor([list(types)])}
    with torch.inference_mode():
        return module(input_ids=row, attention_mask=torch.ones_like(row), **more)


def vector(module: Any, ids: Sequence[int], *, last: bool) -> Vectors:
    """The mean, or the last, of a row's states."""
    hidden: Tensor = alone(module, ids).last_hidden_state[0]
    found: Vectors = (hidden[-1] if last else hidden.mean(dim=0)).numpy()
    return found
