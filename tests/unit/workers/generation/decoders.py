"""Tiny random decoders on disk, with a tokenizer of bytes: every character beyond ASCII takes several tokens."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tests.artifacts import RandomAdapter
from wire.jobs import GenerateInputs, Sampling, Task
from wire.registry import ModelRecord
from workers.generation.generator import Generator, StepBounds
from workers.generation.text import Text
from workers.models import LoadedModel, ModelOptions, load_model
from workers.models.causal import CausalModel

END = 256
TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
    "<{{ m['role'] }}>{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
_SMALL: dict[str, Any] = {
    "vocab_size": 258,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    # wide enough that no two tokens are within rounding of each other
    "initializer_range": 0.6,
    "bos_token_id": None,
    "eos_token_id": END,
    "pad_token_id": 257,
}


def config_of(family: str) -> Any:
    """The tiny configuration of a family of transformers."""
    import transformers

    if family == "gpt2":
        small: dict[str, Any] = {
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 4,
            "n_positions": 512,
            "n_inner": 48,
            "vocab_size": 258,
        }
        return transformers.GPT2Config(**small, initializer_range=0.6, bos_token_id=None, eos_token_id=END)
    if family == "mistral":
        return transformers.MistralConfig(**_SMALL, head_dim=8, sliding_window=12)
    if family == "qwen3":
        return transformers.Qwen3Config(**_SMALL, head_dim=16)
    if family == "gemma":
        return transformers.GemmaConfig(**_SMALL, head_dim=16)
    name = {"llama": "LlamaConfig", "qwen2": "Qwen2Config", "phi": "PhiConfig"}[family]
    return getattr(transformers, name)(**_SMALL)


def write_decoder(folder: Path, family: str = "llama", *, template: str | None = TEMPLATE, seed: int = 0) -> Path:
    """A random model of ``family`` as a folder that transformers reads."""
    import transformers

    torch.manual_seed(seed)
    kinds: Any = transformers
    kinds.AutoModelForCausalLM.from_config(config_of(family)).save_pretrained(folder)
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({symbol: number for number, symbol in enumerate(symbols)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>", "<pad>"])
    fast = kinds.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<pad>")
    fast.chat_template = template
    fast.save_pretrained(folder)
    return folder


def decoder_record(folder: Path, name: str = "test/tiny-decoder") -> ModelRecord:
    """The record of a decoder in ``folder``."""
    return ModelRecord(
        id=name,
        digest="",
        source=f"path:{folder}",
        tasks=[Task.GENERATE],
        pool="default",
        max_tokens=512,
        dimension=None,
        created=0,
    )


def load_decoder(folder: Path, **options: Any) -> LoadedModel:
    """The decoder in ``folder``, as a worker loads it."""
    return load_model(decoder_record(folder), options=ModelOptions(**options))


def causal(model: LoadedModel) -> CausalModel:
    """The generative kind of a model."""
    assert isinstance(model.kind, CausalModel)
    return model.kind


def new_generator(model: LoadedModel, **bounds: Any) -> Generator:
    """A generator whose steps are cut by count alone."""
    kept: dict[str, Any] = {"chunk_tokens": 64} | bounds
    return Generator(model, causal(model), StepBounds(**kept), lambda: None)


def new_text(model: LoadedModel, prompt: str, *, key: str = "job", adapter: str | None = None, **sampling: Any) -> Text:
    """A text that continues ``prompt``, greedy unless ``sampling`` says otherwise."""
    wanted: dict[str, Any] = {"temperature": 0.0, "max_tokens": 12} | sampling
    kind = causal(model)
    prepared = kind.prepare(Task.GENERATE, GenerateInputs(prompt=prompt))
    return kind.begin(key, adapter, prepared.rows[0].ids, Sampling(**wanted))


def finish(generator: Generator, texts: Sequence[Text], *, keep: bool = False) -> list[Text]:
    """Let ``texts`` join as there is room, and step until all have ended."""
    waiting = list(texts)
    while waiting or generator.all_texts:
        while waiting and generator.join(waiting[0]):
            waiting.pop(0)
        outcome = generator.step()
        assert not outcome.failed, outcome.failed
        for text in generator.all_texts:
            if text.finish_reason is not None:
                generator.leave(text, keep=keep)
    return list(texts)


def plain(folder: Path) -> Any:
    """What transformers makes of a decoder's folder."""
    import transformers

    kinds: Any = transformers
    return kinds.AutoModelForCausalLM.from_pretrained(folder).eval()


def with_adapter(folder: Path, adapter: RandomAdapter, peft_folder: Path) -> Any:
    """What PEFT makes of a decoder's folder and an adapter."""
    from peft import PeftModel

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PEFT asks transformers for a name that is on its way out
        warnings.filterwarnings("ignore", "fan_in_fan_out")  # it finds out by itself how GPT-2 keeps its weights
        return PeftModel.from_pretrained(plain(folder), adapter.write_peft(peft_folder)).eval()


def greedy(module: Any, prompt: Sequence[int], tokens: int) -> list[int]:
    """What transformers makes of ``prompt``, with the end token where it ends."""
    ids = torch.tensor([list(prompt)])
    with torch.inference_mode():
        made = module.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False, pad_token_id=257
        )
    return list(map(int, made[0, len(prompt) :]))
