"""Whole models through the limited child: the class is built in a process of its own, within the same limits."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
import torch

from loras.validation.limits import SandboxLimits
from loras.validation.sandbox import ChildEnding, run_child
from tests.unit.validation.models import model_folder, upload_of, with_config
from tests.unit.validation.uploads import Upload, acceptance, adapter, refusal
from wire.codec import decode_json, encode_json
from wire.reports import Finding
from wire.validation import SandboxReply

pytestmark = pytest.mark.timeout(300)
MEBIBYTE = 1 << 20


def judged(upload: Upload, folder: Path, limits: SandboxLimits) -> SandboxReply:
    """The answer of the limited child."""
    folder.mkdir()
    result = run_child("loras.validation", limits.arguments(), encode_json(upload.request(folder)), timeout_s=200)
    assert result.ending is ChildEnding.ANSWERED, result.reason
    return decode_json(result.reply, SandboxReply)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("models") / "bert")


def test_a_model_is_judged_in_the_child(tmp_path: Path, bert: Path) -> None:
    reply = judged(upload_of(bert), tmp_path / "sound", SandboxLimits())
    acceptance(reply)
    assert reply.report.facts.architecture == "BertModel"
    assert reply.probe is not None
    assert (Path(reply.probe.model_dir) / "config.json").is_file()


def test_a_class_that_cannot_be_built_is_refused_with_its_reason(tmp_path: Path, bert: Path) -> None:
    upload = with_config(upload_of(bert), hidden_size=63)
    reply = judged(upload, tmp_path / "odd", SandboxLimits())
    refusal(reply, Finding.ARCHITECTURE_UNSUPPORTED, "hidden size (63)", "attention heads (4)")


def test_a_class_that_needs_too_much_is_a_refusal_too(tmp_path: Path, bert: Path) -> None:
    """Python and numpy have room, torch has not: the process that builds the class dies, the verdict does not."""
    reply = judged(upload_of(bert), tmp_path / "large", SandboxLimits(memory_bytes=500 * MEBIBYTE))
    refusal(reply, Finding.ARCHITECTURE_UNSUPPORTED, "cannot be built")


def pickle_bombs() -> dict[str, bytes]:
    """Pickles in a torch file that would fill memory, were they believed."""

    def rewritten(program: bytes) -> bytes:
        out, source = io.BytesIO(), io.BytesIO()
        torch.save({"a": torch.zeros(2)}, source)
        with zipfile.ZipFile(source) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
            for name in old.namelist():
                new.writestr(name, program if name.endswith("data.pkl") else old.read(name))
        return out.getvalue()

    text = b"X" + (1 << 20).to_bytes(4, "little") + b"x" * (1 << 20)
    return {
        "many texts": rewritten(b"\x80\x02]" + b"(" + text * 200 + b"e."),
        "far memo": rewritten(b"\x80\x02]r\xff\xff\xff\x7f."),
        "doubled lists": rewritten(b"\x80\x02]q\x00" + b"(h\x00h\x00h\x00eq\x00" * 60 + b"."),
        "claimed text": rewritten(b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f."),
        "long number": rewritten(b"\x80\x02\x8b\xff\xff\xff\x03" + b"\x01" * (60 << 20) + b"."),
    }


@pytest.mark.parametrize("name", ["many texts", "far memo", "doubled lists", "claimed text", "long number"])
def test_memory_of_the_pickle_reader_is_bounded(tmp_path: Path, name: str) -> None:
    upload = Upload(
        {"adapter_config.json": adapter().files["adapter_config.json"], "adapter_model.bin": pickle_bombs()[name]}
    )
    reply = judged(upload, tmp_path / "bomb", SandboxLimits(memory_bytes=500 * MEBIBYTE))
    refusal(reply, Finding.FORMAT_UNSUPPORTED, "adapter_model.bin")
