"""The same bytes once more: for another base model, or after the store lost what it had."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from controlplane.accounts.models import Team
from controlplane.accounts.services import create_team_for
from fleet.models import BaseModel
from loras.models import Version
from loras.services import claim_validation, finish_validation, receive_upload
from loras.services.uploads import Received
from loras.storage import artifact_store, is_intact
from loras.uploads.receive import ReceivedFile
from tests.integration.pages.adapters import BASE, accepted
from wire.errors import Code, ShoalError

pytestmark = pytest.mark.django_db

OTHER = "acme/other-base"
DATA = b"the bytes of one file" * 100
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def team(settings: Any, tmp_path: Path) -> Team:
    """A team, two registered base models, and an empty store."""
    settings.SHOAL = settings.SHOAL.model_copy(update={"home": tmp_path / "home", "storage_url": ""})
    for name in (BASE, OTHER):
        BaseModel.objects.create(model_id=name, source=f"path:/models/{name}", digest="0" * 64, manifest={})
    return create_team_for(user=User.objects.create_user("ada"))


def upload(team: Team, tmp_path: Path, *, base_model: str = "") -> Received:
    location = tmp_path / "incoming"
    location.write_bytes(DATA)
    file = ReceivedFile("adapter_model.safetensors", SHA256, len(DATA), location)
    return receive_upload(team=team, name="one", files=[file], base_model=base_model)


def accept(version: Version, tmp_path: Path) -> Version:
    claim = claim_validation(version_id=version.pk)
    assert claim is not None
    assert finish_validation(claim=claim, outcome=accepted(tmp_path, rank=8, seed=1, size_bytes=len(DATA)))
    version.refresh_from_db()
    return version


def test_another_base_model_is_a_conflict_that_names_both(team: Team, tmp_path: Path) -> None:
    first = upload(team, tmp_path)
    for expected in (
        f"one@1 already, which is validating for .* this upload is for {OTHER}",
        f"is for {BASE}; .*{OTHER}",
    ):
        with pytest.raises(ShoalError, match=expected) as refused:
            upload(team, tmp_path, base_model=OTHER)
        assert (refused.value.code, refused.value.info.param) == (Code.CONFLICT, "base_model")
        if first.version.state == "validating":
            accept(first.version, tmp_path)
    for base_model in ("", BASE):
        again = upload(team, tmp_path, base_model=base_model)
        assert (again.version.number, again.created) == (1, False)


def test_lost_uploaded_files_come_back(team: Team, tmp_path: Path) -> None:
    version = accept(upload(team, tmp_path).version, tmp_path)
    store = artifact_store()
    for damage in (store.delete, lambda sha256: overwrite(tmp_path, sha256)):
        damage(SHA256)
        assert not is_intact(store, SHA256)
        assert upload(team, tmp_path).version == version
        assert is_intact(store, SHA256)


def test_a_lost_canonical_artifact_is_made_again(team: Team, tmp_path: Path) -> None:
    version = accept(upload(team, tmp_path).version, tmp_path)
    store = artifact_store()
    overwrite(tmp_path, version.digest)
    assert not is_intact(store, version.digest)
    repair = upload(team, tmp_path)
    assert (repair.version.number, repair.created) == (2, True)
    # asked again while it is being repaired: no third one
    assert upload(team, tmp_path).version == repair.version
    assert accept(repair.version, tmp_path).duplicate_of == version
    assert is_intact(store, version.digest)
    assert upload(team, tmp_path).version == version


def overwrite(tmp_path: Path, sha256: str) -> None:
    """Other bytes of the same length, as a bad disk gives them."""
    path = tmp_path / "home" / "artifacts" / sha256[:2] / sha256
    size_bytes = path.stat().st_size
    path.unlink()
    path.write_bytes(b"?" * size_bytes)
