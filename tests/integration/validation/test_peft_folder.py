"""The probe's reference: PEFT loads what validation wrote and gives what it gave for the adapter it saved itself."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from loras.validation.pipeline import examine
from tests.unit.validation.models import build
from wire.manifest import Manifest
from wire.registry import Mode
from wire.validation import UploadedFile, ValidationRequest
from workers.manifest import make_manifest

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
IDS = torch.arange(10)[None]


@dataclass(frozen=True)
class Base:
    """A tiny base model on disk and its manifest."""

    path: Path
    manifest: Manifest


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Base]:
    found = {}
    for name, family in (("bert", "BertModel"), ("llama", "LlamaForCausalLM")):
        path = tmp_path_factory.mktemp("bases") / name
        build(family).save_pretrained(str(path))
        found[name] = Base(path, make_manifest(f"tiny/{name}", f"path:{path}"))
    return found


def load(base: Base, kind: str, labels: int) -> Any:
    options: dict[str, Any] = {"num_labels": labels} if labels else {}
    model = getattr(transformers, kind).from_pretrained(str(base.path), local_files_only=True, **options)
    model.config.pad_token_id = 0
    return model


def saved_by_peft(base: Base, kind: str, folder: Path, labels: int, settings: dict[str, Any]) -> Any:
    """PEFT's own model with changed numbers, and its output, after it was saved into ``folder``."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(3)
    model = get_peft_model(load(base, kind, labels), LoraConfig(r=4, **settings)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(str(folder))
    config = folder / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"base_model_name_or_path": base.manifest.id}))
    return model


BERT, CLASSIFIER, TAGGER = "BertModel", "BertForSequenceClassification", "BertForTokenClassification"
LLAMA, LLAMA_CLASSIFIER = "LlamaForCausalLM", "LlamaForSequenceClassification"


@pytest.mark.parametrize(
    ("kind", "labels", "mode", "settings"),
    [
        (BERT, 0, Mode.PACKED, {"target_modules": ["query", "value"]}),
        (BERT, 0, Mode.MERGED, {"target_modules": ["query", "dense"], "use_dora": True}),
        (BERT, 0, Mode.MERGED, {"target_modules": ["query"], "bias": "lora_only"}),
        (BERT, 0, Mode.MERGED, {"target_modules": ["query"], "bias": "all", "use_rslora": True}),
        (BERT, 0, Mode.MERGED, {"target_modules": ["query"], "modules_to_save": ["embeddings.LayerNorm"]}),
        (BERT, 0, Mode.MERGED, {"target_modules": ["query"], "modules_to_save": ["word_embeddings"]}),
        (CLASSIFIER, 3, Mode.PACKED, {"target_modules": ["query"], "task_type": "SEQ_CLS"}),
        (TAGGER, 5, Mode.PACKED, {"target_modules": ["value"], "task_type": "TOKEN_CLS"}),
        (CLASSIFIER, 2, Mode.MERGED, {"target_modules": ["query"], "task_type": "SEQ_CLS", "bias": "all"}),
        (LLAMA, 0, Mode.PACKED, {"target_modules": "all-linear", "task_type": "CAUSAL_LM"}),
        (LLAMA, 0, Mode.MERGED, {"target_modules": ["q_proj"], "modules_to_save": ["lm_head", "embed_tokens"]}),
        (LLAMA, 0, Mode.MERGED, {"target_modules": ["q_proj", "lm_head"], "task_type": "CAUSAL_LM"}),
        (LLAMA_CLASSIFIER, 3, Mode.PACKED, {"target_modules": ["q_proj"], "task_type": "SEQ_CLS"}),
    ],
)
def test_peft_gives_the_same_for_what_was_written(
    tmp_path: Path, bases: dict[str, Base], kind: str, labels: int, mode: Mode, settings: dict[str, Any]
) -> None:
    from peft import PeftModel

    base = bases["llama" if kind.startswith("Llama") else "bert"]
    folder, work = tmp_path / "adapter", tmp_path / "work"
    folder.mkdir()
    work.mkdir()
    own = saved_by_peft(base, kind, folder, labels, settings)
    files = [UploadedFile(path.name, str(path)) for path in sorted(folder.iterdir())]
    reply = examine(ValidationRequest(files=files, work_dir=str(work), manifests=[base.manifest]))
    assert not reply.report.failed, reply.report.rows
    assert reply.report.mode is mode, reply.report.mode_reason
    assert reply.probe is not None
    assert len(reply.probe.labels) == labels
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        again = PeftModel.from_pretrained(load(base, kind, labels), reply.probe.peft_dir).eval()
        expected, found = own(input_ids=IDS)[0], again(input_ids=IDS)[0]
        plain = load(base, kind, labels).eval()(input_ids=IDS)[0]
    assert torch.equal(expected, found)
    assert (expected - plain).abs().max() > 1e-5
