"""What a validation is asked, what its limited child answers, and what the probe is asked and answers.

The control plane makes a :class:`ValidationRequest`. A limited child (numpy only) turns it into a
:class:`SandboxReply`: report rows, the canonical artifact, and a :class:`ProbeRequest` when nothing
failed. The probe answers with a :class:`ProbeReply`, whose rows end the report.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from wire.jobs import Task
from wire.manifest import Manifest
from wire.registry import Mode
from wire.reports import Report, Row

PROBE_TOLERANCE = 1e-4


class UploadedFile(msgspec.Struct, frozen=True):
    """A file as uploaded: ``name`` is the relative path its sender gave, ``location`` its place on disk."""

    name: str
    location: str


class ArchiveLimits(msgspec.Struct, frozen=True):
    """Bounds on what an archive may unpack to, counted while it streams. ``ratio`` is unpacked over packed
    bytes, judged once ``ratio_free_bytes`` are out; ``depth`` counts folders."""

    entries: int = 2_000
    total_bytes: int = 2 * 1024**3
    ratio: int = 200
    ratio_free_bytes: int = 16 * 1024**2
    name_bytes: int = 255
    path_bytes: int = 1_024
    depth: int = 12


class ValidationRequest(msgspec.Struct, frozen=True):
    """One upload to judge.

    ``work_dir`` is an empty directory of the caller's, on the same file system as it keeps artifacts; the
    caller removes it. ``manifests`` (or ``manifest_paths``: JSON files) are the registered base models.
    ``wanted_base_model`` is an id the uploader named, or "" to take the base from the upload. ``max_rank``
    is the largest rank a slot holds. ``wanted_kind`` (``lora`` or ``full``) and ``wanted_choice`` (one of the
    question's choices: a folder or file of the upload, ``.`` for its top folder) are what the uploader said or
    answered; "" takes what the upload turns out to be, and asks where that is not clear.
    """

    files: list[UploadedFile]
    work_dir: str
    manifests: list[Manifest] = []
    manifest_paths: list[str] = []
    wanted_base_model: str = ""
    max_rank: int = 64
    archive: ArchiveLimits = ArchiveLimits()
    wanted_kind: str = ""
    wanted_choice: str = ""


class ProbeRequest(msgspec.Struct, frozen=True):
    """Compare the worker's serving path on ``canonical_path`` with an independent one.

    An adapter (``kind`` ``lora``) is compared with PEFT on ``peft_dir``, served ``packed`` or ``merged`` as ``mode``
    says. The keys in ``peft_dir`` are those of the model class for ``task``: for ``classify`` and ``token-classify``
    transformers' class of the base with ``labels`` outputs, its head in ``modules_to_save``; for ``generate`` the
    causal model; else the encoder. A fine-tune (``kind`` ``full``) is compared with plain transformers on
    ``model_dir``, an ordinary folder with the upload's own files; it has no base, so that ``base_…`` are empty.

    ``digest`` is the SHA-256 of the canonical file, ``base_digest`` that of the base model's weights.
    ``tolerance`` is the largest allowed absolute difference of any output value. ``expect_effect`` is false
    when the tensors already show that the adapter changes nothing. ``max_rank`` sizes the probe's slots.
    """

    base_model: str
    base_source: str
    base_digest: str
    base_dimension: int | None
    base_max_tokens: int
    digest: str
    canonical_path: str
    peft_dir: str
    max_rank: int
    expect_effect: bool = True
    tolerance: float = PROBE_TOLERANCE
    kind: str = "lora"
    mode: Mode = Mode.PACKED
    task: Task = Task.EMBEDDINGS
    labels: list[str] = []
    problem: str = "single_label_classification"
    model_dir: str = ""


class ProbeEnding(StrEnum):
    """``decided``: the rows are a verdict. ``crashed`` and ``timed_out`` say nothing final on the adapter."""

    DECIDED = "decided"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"


class ProbeReply(msgspec.Struct, frozen=True):
    """Verdict of a probe: ``max_difference`` to PEFT and ``effect`` (largest difference to the base), as
    absolute differences of output values; ``None`` where the probe did not get that far."""

    rows: list[Row]
    max_difference: float | None = None
    effect: float | None = None
    seconds: float = 0.0
    ending: ProbeEnding = ProbeEnding.DECIDED


class SandboxReply(msgspec.Struct, frozen=True):
    """Answer of the limited child: the report so far, and the probe that has to follow (absent: the verdict
    stands)."""

    report: Report
    canonical_path: str = ""
    probe: ProbeRequest | None = None
