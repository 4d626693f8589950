"""The probe's verdict on every kind of version: packed and merged, with and without a head, decoders, fine-tunes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from tests.unit.workers.conftest import WORDS, write_tiny_bert
from tests.unit.workers.versions import canonical_of, write_bundle, write_canonical
from wire.canonical import HeadHeader
from wire.jobs import Task
from wire.registry import Mode
from wire.reports import Finding, Outcome, Row
from wire.validation import ProbeReply, ProbeRequest
from workers.probe_run import load_base, probe
from workers.sources import weights_digest

pytestmark = pytest.mark.filterwarnings("ignore")
LABELS = ["billing", "outage", "praise"]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_tiny_bert(tmp_path_factory.mktemp("bert"))
    # weights of a trained model's size: else nothing an adapter does can be seen
    from transformers import BertModel

    model = BertModel.from_pretrained(folder)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(6.0)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory, bert: Path) -> Path:
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("llama")
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, intermediate_size=64, max_position_embeddings=80, bos_token_id=2,
                         eos_token_id=3, pad_token_id=0, initializer_range=0.2)  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    (folder / "tokenizer.json").write_bytes((bert / "tokenizer.json").read_bytes())
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def adapted(kind: Any, base: Path, *, labels: list[str] | None = None, strength: float = 0.3, **settings: Any) -> Any:
    """PEFT's model of the class ``kind`` with numbers that no start gives."""
    more = {} if labels is None else {"num_labels": len(labels)}
    torch.manual_seed(3)
    model = get_peft_model(kind.from_pretrained(base, **more), LoraConfig(r=4, lora_alpha=8, **settings))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(strength * torch.randn_like(parameter) / parameter.shape[-1] ** 0.5)
    return model.train(False)


def ask(tmp_path: Path, base: Path, peft: Any, canonical: Path, **more: Any) -> ProbeReply:
    peft.save_pretrained(tmp_path / "peft")
    digest = weights_digest(base)
    request = ProbeRequest("base", f"path:{base}", digest, 32, 40, canonical.stem, str(canonical),
                           str(tmp_path / "peft"), 64, **more)  # fmt: skip
    return probe(load_base("base", f"path:{base}", digest), request)


def passed(reply: ProbeReply) -> Row:
    assert [row for row in reply.rows if row.outcome is not Outcome.PASS] == []
    assert reply.max_difference is not None
    assert reply.max_difference < 1e-4
    assert reply.rows[0].code is Finding.PROBE_PASSED
    return reply.rows[0]


def canonical(tmp_path: Path, base: Path, peft: Any, **more: Any) -> Path:
    return write_canonical(tmp_path, *canonical_of(peft, base_digest=weights_digest(base), **more))


@pytest.mark.parametrize("mode", [Mode.PACKED, Mode.MERGED])
@pytest.mark.parametrize(
    ("task", "class_name", "tensors"),
    [
        (Task.CLASSIFY, "AutoModelForSequenceClassification", ["classifier.weight", "classifier.bias"]),
        (Task.TOKEN_CLASSIFY, "AutoModelForTokenClassification", ["classifier.weight", "classifier.bias"]),
    ],
)
def test_a_classifier_equals_peft_and_its_scores_differ_between_texts(
    tmp_path: Path, bert: Path, task: Task, class_name: str, tensors: list[str], mode: Mode
) -> None:
    import transformers

    dora = {"use_dora": True} if mode is Mode.MERGED else {}
    kind = "SEQ_CLS" if task is Task.CLASSIFY else "TOKEN_CLS"
    peft = adapted(getattr(transformers, class_name), bert, labels=LABELS, task_type=kind,
                   target_modules=["query", "value"], modules_to_save=["classifier"], **dora)  # fmt: skip
    path = canonical(tmp_path, bert, peft, prefix="bert.", head=HeadHeader(task, LABELS, tensors))
    reply = ask(tmp_path, bert, peft, path, task=task, labels=LABELS, mode=mode)
    row = passed(reply)
    assert ("merged weights" in row.found) == (mode is Mode.MERGED)
    assert "between texts" in reply.rows[1].found


@pytest.mark.parametrize("dora", [False, True])
def test_an_encoder_adapter_equals_peft_in_the_mode_that_serves_it(tmp_path: Path, bert: Path, dora: bool) -> None:
    from transformers import AutoModel

    peft = adapted(AutoModel, bert, target_modules=["query", "value", "dense"], use_dora=dora)
    mode = Mode.MERGED if dora else Mode.PACKED
    reply = ask(tmp_path, bert, peft, canonical(tmp_path, bert, peft), mode=mode)
    passed(reply)
    assert reply.effect is not None
    assert reply.effect > 1e-3


@pytest.mark.parametrize("saved", [None, ["lm_head"]])
def test_a_decoder_adapter_equals_peft_in_its_logits(tmp_path: Path, llama: Path, saved: list[str] | None) -> None:
    from transformers import AutoModelForCausalLM

    peft = adapted(AutoModelForCausalLM, llama, target_modules=["q_proj", "down_proj"], modules_to_save=saved)
    mode = Mode.PACKED if saved is None else Mode.MERGED
    passed(ask(tmp_path, llama, peft, canonical(tmp_path, llama, peft), mode=mode, task=Task.GENERATE))


def test_a_wrong_scale_is_a_mismatch_with_both_numbers(tmp_path: Path, bert: Path) -> None:
    from transformers import AutoModel

    peft = adapted(AutoModel, bert, target_modules=["query", "value"], use_dora=True)
    tensors, header = canonical_of(peft, base_digest=weights_digest(bert))
    halved = {name: tensor * (0.5 if "magnitude" in name else 1.0) for name, tensor in tensors.items()}
    reply = ask(tmp_path, bert, peft, write_canonical(tmp_path, halved, header), mode=Mode.MERGED)
    assert [row.code for row in reply.rows] == [Finding.PROBE_MISMATCH]
    assert "limit" in reply.rows[0].found


@pytest.mark.parametrize("kind", ["encoder", "decoder", "classifier"])
def test_a_fine_tune_equals_plain_transformers(tmp_path: Path, bert: Path, llama: Path, kind: str) -> None:
    folder, task = (llama, Task.GENERATE) if kind == "decoder" else (bert, Task.EMBEDDINGS)
    if kind == "classifier":
        from transformers import BertForSequenceClassification

        task = Task.CLASSIFY
        folder = tmp_path / "classifier"
        torch.manual_seed(1)
        BertForSequenceClassification.from_pretrained(bert, num_labels=3).save_pretrained(folder)
        (folder / "tokenizer.json").write_bytes((bert / "tokenizer.json").read_bytes())
    path = write_bundle(tmp_path, folder)
    request = ProbeRequest("", "", "", None, 40, path.stem, str(path), "", 64, kind="full", mode=Mode.FULL, task=task,
                           model_dir=str(folder))  # fmt: skip
    assert "each run twice" in passed(probe(None, request)).found


def test_a_fine_tune_with_infinite_output_is_refused(tmp_path: Path, bert: Path) -> None:
    from transformers import BertModel

    model = BertModel.from_pretrained(bert)
    with torch.no_grad():
        model.get_parameter("encoder.layer.0.output.dense.weight").fill_(3e38)
    folder = tmp_path / "broken"
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_bytes((bert / "tokenizer.json").read_bytes())
    path = write_bundle(tmp_path, folder)
    request = ProbeRequest("", "", "", None, 40, path.stem, str(path), "", 64, kind="full", mode=Mode.FULL,
                           model_dir=str(folder))  # fmt: skip
    assert [row.code for row in probe(None, request).rows] == [Finding.PROBE_NONFINITE]
