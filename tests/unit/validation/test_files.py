"""Which files are the adapter: junk, companions, several adapters, pointers, pickles, other formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.validation.uploads import Upload, acceptance, adapter, packed, refusal, rows_of, zipped
from wire.reports import Finding, Outcome

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 600000\n"
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def test_junk_and_companions_are_listed_and_not_read(tmp_path: Path) -> None:
    upload = adapter()
    wrapped = {f"run/{name}": data for name, data in upload.files.items()}
    junk = ["__MACOSX/run/._x", "run/._adapter_config.json", "run/.DS_Store", "run/.git/config"]
    companions = [
        "run/optimizer.pt",
        "run/rng_state.pth",
        "run/training_args.bin",
        "run/README.md",
        "run/tokenizer.json",
    ]
    data = zipped(wrapped | dict.fromkeys(junk + companions, b"\x80\x04junk"))
    reply = packed(upload, data).examine(tmp_path)
    acceptance(reply, Finding.FILES_IGNORED)
    found = " ".join(row.found for row in reply.report.rows if row.code is Finding.FILES_IGNORED)
    assert all(name in found for name in junk + companions)


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_lfs_pointer(tmp_path: Path, name: str) -> None:
    upload = adapter()
    upload.files[name] = POINTER
    refusal(upload.examine(tmp_path), Finding.LFS_POINTER, name, "git lfs pull")


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({"README.md": b"hello"}, Finding.FILE_MISSING),
        ({CONFIG: b"{}"}, Finding.FILE_MISSING),
        ({WEIGHTS: b"x"}, Finding.CONFIG_MISSING),
        ({"anything.safetensors": b"x"}, Finding.CONFIG_MISSING),
        ({CONFIG: b"{}", "adapter.gguf": b"GGUF"}, Finding.FORMAT_GGUF),
        ({"adapter.gguf": b"GGUF"}, Finding.FORMAT_GGUF),
        ({"pytorch_lora_weights.safetensors": b"x"}, Finding.FORMAT_DIFFUSERS),
        ({"model.onnx": b"x", "README.md": b"x"}, Finding.FORMAT_UNSUPPORTED),
        ({"model.safetensors": b"x"}, Finding.CONFIG_MISSING),
    ],
)
def test_what_is_missing_is_said(tmp_path: Path, files: dict[str, bytes], code: Finding) -> None:
    refusal(Upload(files).examine(tmp_path), code)


def test_checks_that_passed_are_shown_before_a_refusal(tmp_path: Path) -> None:
    upload = adapter()
    upload.files[WEIGHTS] = b""
    reply = upload.examine(tmp_path)
    refusal(reply, Finding.TRUNCATED)
    assert [row.check for row in reply.report.rows if row.outcome is Outcome.PASS] == [
        "Archive is safe",
        "Files are there",
    ]
    assert rows_of(reply, Outcome.FAIL)[Finding.TRUNCATED].check == "Weights file is well formed"
