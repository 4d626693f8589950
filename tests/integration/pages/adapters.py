"""Small real LoRA folders, and verdicts on versions, for tests of pages."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path

from loras.validation.outcome import ValidationOutcome
from wire.registry import Mode
from wire.reports import AdapterFacts, Finding, Outcome, Question, Report, Row

BASE = "sentence-transformers/all-MiniLM-L6-v2"
HIDDEN = 384


def safetensors_bytes(*, layers: int = 2, rank: int = 8, fill: float = 0.5) -> bytes:
    """A PEFT LoRA on query and value of ``layers`` layers, F32."""
    head: dict[str, object] = {"__metadata__": {"format": "pt"}}
    body = bytearray()
    for layer in range(layers):
        for module in ("query", "value"):
            for part, shape in (("A", [rank, HIDDEN]), ("B", [HIDDEN, rank])):
                name = f"base_model.model.encoder.layer.{layer}.attention.self.{module}.lora_{part}.weight"
                data = struct.pack("<f", fill + layer) * (rank * HIDDEN)
                head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
                body += data
    encoded = json.dumps(head).encode()
    return struct.pack("<Q", len(encoded)) + encoded + bytes(body)


def write_folder(folder: Path, *, rank: int = 8, fill: float = 0.5) -> Path:
    """The folder that ``save_pretrained`` would leave, with a README and junk."""
    folder.mkdir(parents=True)
    config = {
        "base_model_name_or_path": BASE, "peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank,
        "target_modules": ["query", "value"], "task_type": "FEATURE_EXTRACTION",
    }  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2))
    (folder / "adapter_model.safetensors").write_bytes(safetensors_bytes(rank=rank, fill=fill))
    (folder / "README.md").write_text("# A small adapter\n")
    (folder / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
    return folder


def accepted(work: Path, *, rank: int, seed: int, size_bytes: int) -> ValidationOutcome:
    """A verdict that accepts, with a canonical file of its own content."""
    canonical = work / f"canonical-{seed}"
    canonical.write_bytes(f"canonical artifact {seed}".encode())
    digest = hashlib.sha256(canonical.read_bytes()).hexdigest()
    rows = [
        Row("files", Outcome.PASS, Finding.OK, "adapter_config.json and adapter_model.safetensors, 4 files in all."),
        Row("files left out", Outcome.NOTE, Finding.FILES_IGNORED, "Ignored: README.md, .DS_Store.", ""),
        Row("safetensors header", Outcome.PASS, Finding.OK, "48 tensors, F32, header and data fit the file exactly."),
        Row("configuration", Outcome.PASS, Finding.OK, f"LoRA, r = {rank}, alpha = {2 * rank}, dropout ignored."),
        Row("base model", Outcome.PASS, Finding.OK, f"{BASE}, digest matches the registered one."),
        Row("shapes", Outcome.PASS, Finding.OK, "24 of 24 modules match the base model’s shapes."),
        Row("finite numbers", Outcome.PASS, Finding.OK, "All 589,824 numbers are finite."),
        Row(
            "probe",
            Outcome.PASS,
            Finding.PROBE_PASSED,
            "Served output equals PEFT’s within 3.1e-7, differs from the base’s by 0.41.",
        ),
    ]
    facts = AdapterFacts(
        base_model=BASE, rank=rank, alpha=2.0 * rank, targets=["key", "query", "value"], modules=18, tensors=36,
        dtype="F32", parameters=384 * rank * 2 * 18, size_bytes=size_bytes,
    )  # fmt: skip
    reason = "All target modules are linear and of one rank: they fit the slots of the packed engine."
    report = Report(rows=rows, digest=digest, mode=Mode.PACKED, mode_reason=reason, facts=facts, seconds=1.84)
    return ValidationOutcome(report, canonical)


def refused() -> ValidationOutcome:
    """A verdict that rejects with two findings."""
    rows = [
        Row("files", Outcome.PASS, Finding.OK, "adapter_config.json and adapter_model.safetensors."),
        Row("safetensors header", Outcome.PASS, Finding.OK, "48 tensors, F16."),
        Row("configuration", Outcome.NOTE, Finding.UNKNOWN_KEYS_INERT, "Unknown and inert: corda_config, lora_bias."),
        Row(
            "shapes", Outcome.FAIL, Finding.SHAPE_MISMATCH,
            "encoder.layer.0.attention.self.query: lora_A is (16, 768), the base model’s module takes 384 inputs. "
            "24 modules differ in the same way.",
            "This looks like an adapter for a base model with hidden size 768. Upload it for that base model.",
        ),
        Row(
            "finite numbers", Outcome.FAIL, Finding.NONFINITE,
            "encoder.layer.3.attention.self.value.lora_B holds 12 NaN of 6,144 numbers.",
            "Training diverged. Use an earlier checkpoint or a smaller learning rate.",
        ),
    ]  # fmt: skip
    return ValidationOutcome(Report(rows=rows, seconds=0.31), None)


def asking() -> ValidationOutcome:
    """A verdict that needs the base model's name."""
    text = "The configuration names no base model (base_model_name_or_path is null). Which one was it trained on?"
    rows = [
        Row("files", Outcome.PASS, Finding.OK, "adapter_config.json and adapter_model.safetensors."),
        Row(
            "base model",
            Outcome.ASK,
            Finding.BASE_MODEL_UNKNOWN,
            "base_model_name_or_path is null.",
            "Choose the base model.",
        ),
    ]
    return ValidationOutcome(Report(rows=rows, question=Question("base_model", text, [BASE]), seconds=0.2), None)
