"""Which files are the adapter: junk, companions, several adapters, pointers, pickles, other formats."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path

import pytest

from tests.unit.validation.uploads import Upload, acceptance, adapter, packed, refusal, rows_of, zipped
from wire.reports import Finding, Outcome

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 600000\n"
TRAP = Path(tempfile.gettempdir()) / "executed-by-a-pickle"
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


class Trap:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return (Path.touch, (TRAP,))


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


def test_two_adapters_are_named(tmp_path: Path) -> None:
    files = adapter().files
    upload = Upload(
        {f"{folder}/{name}": data for folder in ("checkpoint-5", "checkpoint-9") for name, data in files.items()}
    )
    refusal(upload.examine(tmp_path), Finding.SEVERAL_ADAPTERS, "checkpoint-5", "checkpoint-9")


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_lfs_pointer(tmp_path: Path, name: str) -> None:
    upload = adapter()
    upload.files[name] = POINTER
    refusal(upload.examine(tmp_path), Finding.LFS_POINTER, name, "git lfs pull")


@pytest.mark.parametrize("name", ["adapter_model.bin", "lora.pt", "adapter_model.pth"])
def test_pickles_are_refused_and_never_run(tmp_path: Path, name: str) -> None:
    upload = Upload({CONFIG: adapter().files[CONFIG], name: pickle.dumps(Trap())})
    refusal(upload.examine(tmp_path), Finding.PICKLE_UNSAFE, name, "save_pretrained")
    assert not Path(TRAP).exists()


def test_a_pickle_alone(tmp_path: Path) -> None:
    refusal(Upload({"adapter_model.bin": b"PK\x03\x04"}).examine(tmp_path), Finding.PICKLE_UNSAFE)


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({"README.md": b"hello"}, Finding.FILE_MISSING),
        ({CONFIG: b"{}"}, Finding.FILE_MISSING),
        ({WEIGHTS: b"x"}, Finding.CONFIG_MISSING),
        ({"anything.safetensors": b"x"}, Finding.CONFIG_MISSING),
        ({"model.safetensors": b"x", "config.json": b"{}"}, Finding.FULL_MODEL),
        ({"model.safetensors": b"x", CONFIG: b"{}"}, Finding.FULL_MODEL),
        ({CONFIG: b"{}", "adapter.gguf": b"GGUF"}, Finding.FORMAT_UNSUPPORTED),
        ({CONFIG: b"{}", "a.safetensors": b"x", "b.safetensors": b"x"}, Finding.SEVERAL_ADAPTERS),
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
