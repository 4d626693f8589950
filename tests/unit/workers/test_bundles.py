"""A fine-tune's canonical file opens as the folder it was made from, whatever is written in it."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
import torch

from tests.unit.workers.conftest import write_tiny_bert
from tests.unit.workers.versions import write_bundle
from wire.errors import Code, ShoalError
from wire.registry import ModelRecord
from workers.bundles import scratch_folder, unpack_bundle
from workers.sources import ARTIFACT_SOURCE, open_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_bert(tmp_path_factory.mktemp("tuned"), seed=3)


def test_a_bundle_is_the_folder_it_was_made_from(tmp_path: Path, folder: Path, tiny_record: ModelRecord) -> None:
    from transformers import AutoModel

    path = write_bundle(tmp_path, folder, extra={"1_Pooling/config.json": b"{}"})
    record = msgspec.structs.replace(
        tiny_record, id="team/tuned@1", team="team", source=ARTIFACT_SOURCE, digest=path.stem, artifact=path.stem
    )
    with scratch_folder() as scratch:
        opened = open_model(record, path, scratch)
        assert (opened / "1_Pooling" / "config.json").read_bytes() == b"{}"
        assert (opened / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()
        found = AutoModel.from_pretrained(str(opened), local_files_only=True)
    assert not scratch.exists()
    expected = AutoModel.from_pretrained(str(folder), local_files_only=True)
    for name, parameter in expected.named_parameters():
        assert torch.equal(found.get_parameter(name), parameter), name


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", "model.safetensors", ""])
def test_no_file_of_a_bundle_leaves_its_folder(tmp_path: Path, folder: Path, name: str) -> None:
    path = write_bundle(tmp_path, folder, extra={name: b"x"})
    scratch = tmp_path / "a" / "b"
    scratch.mkdir(parents=True)
    with pytest.raises(ShoalError, match="no name for a file") as raised:
        unpack_bundle(path, scratch, digest=path.stem)
    assert raised.value.info.code is Code.ADAPTER_UNLOADABLE
    assert [found for found in tmp_path.rglob("*") if found.is_file()] == [path]


def test_damaged_missing_and_undelivered_files_are_told_apart(
    tmp_path: Path, folder: Path, tiny_record: ModelRecord
) -> None:
    path = write_bundle(tmp_path, folder)
    record = msgspec.structs.replace(tiny_record, source=ARTIFACT_SOURCE, digest=path.stem, artifact=path.stem)
    with pytest.raises(ShoalError) as undelivered:
        open_model(record, None, tmp_path)
    assert undelivered.value.info.code is Code.ARTIFACT_UNAVAILABLE
    with path.open("r+b") as handle:
        handle.seek(-1, 2)
        handle.write(b"\x7f")
    with pytest.raises(ShoalError, match="SHA-256") as damaged:
        open_model(record, path, tmp_path)
    assert damaged.value.info.code is Code.ARTIFACT_CORRUPT
    path.unlink()
    with pytest.raises(ShoalError) as gone:
        open_model(record, path, tmp_path)
    assert gone.value.info.code is Code.ARTIFACT_UNAVAILABLE


def test_no_room_for_the_small_files_is_told_with_the_place_and_may_pass(tmp_path: Path, folder: Path) -> None:
    path = write_bundle(tmp_path, folder)
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(ShoalError, match="small files") as raised:
        unpack_bundle(path, blocked, digest=path.stem)
    assert raised.value.info.code is Code.OUT_OF_MEMORY
    assert str(blocked) in raised.value.info.message


def test_what_a_killed_worker_left_is_removed_by_the_next_load(tmp_path: Path) -> None:
    left, own = tmp_path / "shoal-model-999999999-abc", tmp_path / "shoal-model-1-abc"
    for folder in (left, own):
        folder.mkdir()
        (folder / "config.json").touch()
    with scratch_folder(tmp_path) as scratch:
        assert scratch.is_dir()
    assert not left.exists()
    assert own.exists(), "the folder of a process that lives was removed"
    shutil.rmtree(own)
