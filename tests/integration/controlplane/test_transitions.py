"""States change by compare-and-swap: one winner, one event; waiting states have an end."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from controlplane.accounts.services import create_team_for
from controlplane.events.models import Event
from loras.models import Adapter, Version
from loras.services import claim_validation, sweep_versions
from loras.services.transitions import move_version
from loras.states import State

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
