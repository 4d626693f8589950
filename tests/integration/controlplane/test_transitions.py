"""States change by compare-and-swap: one winner, one event; waiting states have an end."""

from __future__ import annotations

import errno
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from controlplane.accounts.services import create_team_for
from controlplane.events.models import Event
from loras.models import Adapter, Version
from loras.services import abandon_claim, claim_validation, sweep_incoming_files, sweep_versions
from loras.services.transitions import move_version
from loras.states import State
from loras.storage import MissingContent

pytestmark = pytest.mark.django_db


@pytest.fixture
def version() -> Version:
    """A version that waits for its validation."""
    team = create_team_for(user=User.objects.create_user("ada"))
    adapter = Adapter.objects.create(team=team, name="one", last_number=1)
    return Version.objects.create(adapter=adapter, number=1, state=State.VALIDATING, dispatched_at=timezone.now())


def test_two_deciders_one_winner(version: Version) -> None:
    other = Version.objects.get(pk=version.pk)
    assert move_version(version=version, to=State.READY, message="first")
    assert not move_version(version=other, to=State.REJECTED, message="second")
    assert Version.objects.get(pk=version.pk).state == State.READY
    assert [event.message for event in Event.objects.filter(subject=str(version))] == ["first"]
    with pytest.raises(ValueError, match="ready leads to"):
        move_version(version=version, to=State.VALIDATING, message="no such way")


def test_a_claim_is_held_by_one_and_lost_to_the_sweeper(version: Version) -> None:
    claim = claim_validation(version_id=version.pk)
    assert claim is not None
    assert claim_validation(version_id=version.pk) is None
    Version.objects.filter(pk=version.pk).update(claimed_at=timezone.now() - timedelta(hours=1))
    assert sweep_versions() == 1
    # the process that was thought dead comes back too late
    assert not move_version(version=claim.version, to=State.READY, message="late", claimed_at=claim.claimed_at)
    again = claim_validation(version_id=version.pk)
    assert again is not None
    assert again.attempt == 2
    Version.objects.filter(pk=version.pk).update(claimed_at=timezone.now() - timedelta(hours=1))
    assert sweep_versions() == 1
    assert sweep_versions() == 0
    version.refresh_from_db()
    assert version.state == State.REJECTED
    assert version.report is not None
    assert version.report["rows"][0]["code"] == "VALIDATION_CRASHED"


@pytest.mark.parametrize("state", [State.RECEIVING, State.NEEDS_INPUT])
def test_waiting_for_a_person_ends(version: Version, state: State) -> None:
    Version.objects.filter(pk=version.pk).update(state=state)
    assert sweep_versions() == 0
    Version.objects.filter(pk=version.pk).update(state_since=timezone.now() - timedelta(days=8))
    assert sweep_versions() == 1
    version.refresh_from_db()
    assert version.state == State.REJECTED


def verdict(version: Version) -> tuple[str, str, str]:
    version.refresh_from_db()
    row = version.report["rows"][0] if version.report else {"code": "", "found": "", "todo": ""}
    return version.state, row["code"], row["found"] + row["todo"]


def test_a_server_without_room_is_tried_again_for_an_hour_and_not_for_ever(version: Version) -> None:
    no_room = OSError(errno.ENOSPC, "No space left on device")
    for _ in range(5):
        claim = claim_validation(version_id=version.pk)
        assert claim is not None
        assert abandon_claim(claim=claim, error=no_room)
        assert verdict(version) == ("validating", "", "")
    Version.objects.filter(pk=version.pk).update(state_since=timezone.now() - timedelta(minutes=61))
    claim = claim_validation(version_id=version.pk)
    assert claim is not None
    assert abandon_claim(claim=claim, error=no_room)
    state, code, words = verdict(version)
    assert (state, code) == ("rejected", "SERVER_FAILED")
    assert "No space left on device" in words
    assert "wrong with the files" in words


def test_content_that_the_server_lost_is_not_blamed_on_the_files(version: Version) -> None:
    claim = claim_validation(version_id=version.pk)
    assert claim is not None
    assert abandon_claim(claim=claim, error=MissingContent("ab" * 32))
    state, code, words = verdict(version)
    assert (state, code) == ("rejected", "SERVER_FAILED")
    assert "The server has lost a file" in words
    assert "Upload it again" in words


def test_left_over_files_go_whoever_else_removes_some(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SHOAL_INCOMING_DIR = tmp_path
    long_ago = time.time() - 2 * 86_400
    for name in "abc":
        (tmp_path / name).write_text("left over")
        os.utime(tmp_path / name, (long_ago, long_ago))
    glob = Path.glob

    def gone_in_between(path: Path, pattern: str) -> list[Path]:
        found = sorted(glob(path, pattern))
        if path == tmp_path:
            (tmp_path / "a").unlink()
        return found

    monkeypatch.setattr(Path, "glob", gone_in_between)
    assert sweep_incoming_files() == 2
    assert os.listdir(tmp_path) == []
