"""Every kind of store keeps the same promises."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from django.core.files.storage import FileSystemStorage, InMemoryStorage

from loras.storage import ArtifactStore, MissingContent, is_intact
from loras.storage.files import FileStore
from loras.storage.remote import RemoteStore

DATA = b"canonical" * 1000
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture(params=["files", "remote files", "remote memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    kinds: dict[str, ArtifactStore] = {
        "files": FileStore(tmp_path / "store"),
        "remote files": RemoteStore(FileSystemStorage(location=tmp_path / "remote")),
        "remote memory": RemoteStore(InMemoryStorage()),
    }
    return kinds[request.param]


def put(store: ArtifactStore, path: Path) -> None:
    path.write_bytes(DATA)
    store.put_file(path, SHA256)


def test_content_is_kept_once_read_and_deleted(store: ArtifactStore, tmp_path: Path) -> None:
    for _ in range(2):
        put(store, tmp_path / "incoming")
        assert not (tmp_path / "incoming").exists()
    assert store.exists(SHA256)
    with store.open(SHA256) as stream:
        stream.seek(9)
        assert stream.read(9) == b"canonical"
    store.copy_to(SHA256, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == DATA
    store.delete(SHA256)
    store.delete(SHA256)
    assert not store.exists(SHA256)
    with pytest.raises(MissingContent):
        store.open(SHA256)
    with pytest.raises(MissingContent):
        store.copy_to(SHA256, tmp_path / "second")


def test_broken_content_is_replaced_though_it_has_the_right_length(store: ArtifactStore, tmp_path: Path) -> None:
    (tmp_path / "incoming").write_bytes(b"?" * len(DATA))
    store.put_file(tmp_path / "incoming", SHA256)
    assert not is_intact(store, SHA256)
    put(store, tmp_path / "incoming")
    assert is_intact(store, SHA256)
    with store.open(SHA256) as stream:
        assert stream.read() == DATA


def test_files_appear_whole_and_names_stay_inside(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store")
    # what an earlier write cut short is replaced, not trusted
    target = tmp_path / "store" / SHA256[:2] / SHA256
    target.parent.mkdir(parents=True)
    target.write_bytes(DATA[:10])
    put(store, tmp_path / "incoming")
    assert target.read_bytes() == DATA
    assert [path.name for path in target.parent.iterdir()] == [SHA256]
    for name in ("../secret_key", "x" * 64, SHA256.upper()):
        with pytest.raises(MissingContent):
            store.exists(name)
