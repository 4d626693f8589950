"""Verdict of a validation: one row per check, with what was found, what to do, and a stable code."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from wire.jobs import Task
from wire.registry import Mode


class Outcome(StrEnum):
    """Result of one check. ``ask`` stops with one question to the uploader."""

    PASS = "pass"  # noqa: S105
    NOTE = "note"
    FAIL = "fail"
    ASK = "ask"


class Finding(StrEnum):
    """Stable codes of report rows. A test freezes them."""

    OK = "OK"
    # archive and files
    ARCHIVE_UNSAFE = "ARCHIVE_UNSAFE"
    ARCHIVE_TOO_LARGE = "ARCHIVE_TOO_LARGE"
    ARCHIVE_UNSUPPORTED = "ARCHIVE_UNSUPPORTED"
    ARCHIVE_CORRUPT = "ARCHIVE_CORRUPT"
    FILES_IGNORED = "FILES_IGNORED"
    FILE_MISSING = "FILE_MISSING"
    SEVERAL_ADAPTERS = "SEVERAL_ADAPTERS"
    LFS_POINTER = "LFS_POINTER"
    PICKLE_UNSAFE = "PICKLE_UNSAFE"
    PICKLE_CONVERTED = "PICKLE_CONVERTED"
    FORMAT_UNSUPPORTED = "FORMAT_UNSUPPORTED"
    FORMAT_MLX = "FORMAT_MLX"
    FORMAT_KOHYA = "FORMAT_KOHYA"
    FORMAT_DIFFUSERS = "FORMAT_DIFFUSERS"
    FORMAT_GGUF = "FORMAT_GGUF"
    FULL_MODEL = "FULL_MODEL"
    SHARD_MISSING = "SHARD_MISSING"
    # safetensors header
    TRUNCATED = "TRUNCATED"
    HEADER_INVALID = "HEADER_INVALID"
    DUPLICATE_TENSOR = "DUPLICATE_TENSOR"
    DTYPE_UNSUPPORTED = "DTYPE_UNSUPPORTED"
    EMPTY_TENSOR = "EMPTY_TENSOR"
    # configuration
    CONFIG_INVALID = "CONFIG_INVALID"
    CONFIG_MISSING = "CONFIG_MISSING"
    CONFIG_INFERRED = "CONFIG_INFERRED"
    TYPE_UNSUPPORTED = "TYPE_UNSUPPORTED"
    VARIANT_UNSUPPORTED = "VARIANT_UNSUPPORTED"
    UNKNOWN_KEYS_INERT = "UNKNOWN_KEYS_INERT"
    MODULES_TO_SAVE_ABSENT = "MODULES_TO_SAVE_ABSENT"
    UNDECLARED_DORA = "UNDECLARED_DORA"
    TASK_MISMATCH = "TASK_MISMATCH"
    HEAD_MISSING = "HEAD_MISSING"
    LABELS_INFERRED = "LABELS_INFERRED"
    # a fine-tune's own files
    CUSTOM_CODE = "CUSTOM_CODE"
    ARCHITECTURE_UNSUPPORTED = "ARCHITECTURE_UNSUPPORTED"
    TENSORS_MISSING = "TENSORS_MISSING"
    TENSORS_UNUSED = "TENSORS_UNUSED"
    TOKENIZER_MISSING = "TOKENIZER_MISSING"
    TOKENIZER_INVALID = "TOKENIZER_INVALID"
    # base model, names, shapes
    BASE_MODEL_UNKNOWN = "BASE_MODEL_UNKNOWN"
    BASE_MODEL_CHANGED = "BASE_MODEL_CHANGED"
    KEYS_NORMALISED = "KEYS_NORMALISED"
    TARGETS_RESOLVED = "TARGETS_RESOLVED"
    PARTIAL_MATCH = "PARTIAL_MATCH"
    ADAPTER_INERT = "ADAPTER_INERT"
    SHAPE_MISMATCH = "SHAPE_MISMATCH"
    FULL_WEIGHT_IN_ADAPTER = "FULL_WEIGHT_IN_ADAPTER"
    VOCAB_RESIZED = "VOCAB_RESIZED"
    # pairs and numbers
    UNPAIRED = "UNPAIRED"
    AB_SHAPE = "AB_SHAPE"
    RANK_CONFLICT = "RANK_CONFLICT"
    RANK_TOO_LARGE = "RANK_TOO_LARGE"
    NONFINITE = "NONFINITE"
    NO_EFFECT = "NO_EFFECT"
    # probe
    PROBE_PASSED = "PROBE_PASSED"
    PROBE_NONFINITE = "PROBE_NONFINITE"
    PROBE_MISMATCH = "PROBE_MISMATCH"
    PROBE_FAILED = "PROBE_FAILED"
    # the validation itself
    VALIDATION_CRASHED = "VALIDATION_CRASHED"
    VALIDATION_TIMEOUT = "VALIDATION_TIMEOUT"
    # nothing about the upload: the server could not judge it
    SERVER_FAILED = "SERVER_FAILED"


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """One check: its name in words, the outcome, what was found (with the name and number), and the next step."""

    check: str
    outcome: Outcome
    code: Finding
    found: str
    todo: str = ""


class Question(msgspec.Struct, frozen=True):
    """The one fact that ``needs_input`` asks for: the field to send and the values that fit.

    ``field`` is ``base_model``, ``kind`` (``lora`` or ``full``) or ``choice`` (which folder or file of the upload).
    """

    field: str
    text: str
    choices: list[str]


class AdapterFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a valid upload is, for pages and clients. ``rank`` is the largest rank, ``targets`` short module names.

    ``tasks`` are those it serves, ``labels`` those of its head. ``architecture``, ``dimension``, ``max_tokens`` and
    ``vocabulary`` are set for a fine-tune, whose model record needs them.
    """

    base_model: str = ""
    rank: int = 0
    alpha: float = 0.0
    targets: list[str] = []
    modules: int = 0
    tensors: int = 0
    dtype: str = ""
    parameters: int = 0
    size_bytes: int = 0
    has_effect: bool = True
    tasks: list[Task] = []
    labels: list[str] = []
    architecture: str = ""
    dimension: int | None = None
    max_tokens: int | None = None
    vocabulary: int | None = None


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything a validation found. ``digest`` and ``facts`` are set once the canonical artifact was written.

    ``kind`` is ``lora`` or ``full``: what the upload turned out to be.
    """

    rows: list[Row]
    question: Question | None = None
    digest: str = ""
    mode: Mode = Mode.PACKED
    mode_reason: str = ""
    facts: AdapterFacts = AdapterFacts()
    seconds: float = 0.0
    kind: str = "lora"

    @property
    def failed(self) -> bool:
        """Whether any check refused the upload."""
        return any(row.outcome is Outcome.FAIL for row in self.rows)
