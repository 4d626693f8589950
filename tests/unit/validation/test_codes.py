"""Report codes are part of the interface: scripts and pages compare them, so none may change or go."""

from __future__ import annotations

import re
from pathlib import Path

from wire.reports import Finding, Outcome

FROZEN = """
OK ARCHIVE_UNSAFE ARCHIVE_TOO_LARGE ARCHIVE_UNSUPPORTED ARCHIVE_CORRUPT FILES_IGNORED FILE_MISSING SEVERAL_ADAPTERS
LFS_POINTER PICKLE_UNSAFE PICKLE_CONVERTED FORMAT_UNSUPPORTED FORMAT_MLX FORMAT_KOHYA FORMAT_DIFFUSERS FORMAT_GGUF
FULL_MODEL SHARD_MISSING TRUNCATED HEADER_INVALID DUPLICATE_TENSOR
DTYPE_UNSUPPORTED EMPTY_TENSOR CONFIG_INVALID CONFIG_MISSING CONFIG_INFERRED TYPE_UNSUPPORTED VARIANT_UNSUPPORTED
UNKNOWN_KEYS_INERT MODULES_TO_SAVE_ABSENT UNDECLARED_DORA TASK_MISMATCH HEAD_MISSING LABELS_INFERRED
CUSTOM_CODE ARCHITECTURE_UNSUPPORTED TENSORS_MISSING TENSORS_UNUSED TOKENIZER_MISSING TOKENIZER_INVALID
BASE_MODEL_UNKNOWN
BASE_MODEL_CHANGED KEYS_NORMALISED TARGETS_RESOLVED PARTIAL_MATCH ADAPTER_INERT SHAPE_MISMATCH
FULL_WEIGHT_IN_ADAPTER VOCAB_RESIZED UNPAIRED AB_SHAPE RANK_CONFLICT RANK_TOO_LARGE NONFINITE NO_EFFECT
PROBE_PASSED PROBE_NONFINITE PROBE_MISMATCH PROBE_FAILED VALIDATION_CRASHED VALIDATION_TIMEOUT SERVER_FAILED
"""


def test_codes_are_frozen() -> None:
    assert {code.value for code in Finding} == set(FROZEN.split())
    assert all(code.name == code.value for code in Finding)


def test_outcomes_are_frozen() -> None:
    assert [outcome.value for outcome in Outcome] == ["pass", "note", "fail", "ask"]


def test_the_documentation_lists_every_code_once() -> None:
    text = (Path(__file__).parents[3] / "docs" / "verdicts.md").read_text()
    rows = re.findall(r"^\| `([A-Z_0-9]+)` \| ([a-z, ]+) \| [^|]+ \| [^|]+ \|$", text, re.MULTILINE)
    assert sorted(code for code, _ in rows) == sorted(code.value for code in Finding)
    outcomes = {outcome.value for outcome in Outcome}
    assert all(set(ending.split(", ")) <= outcomes for _, ending in rows)
