"""What one viewer is told of a worker: names of their own teams' versions, and nobody else's."""

from __future__ import annotations

import time

import msgspec

from fleet.naming import NameBook
from fleet.rendering import digests_of, render_worker
from fleet.residents import bars
from fleet.telemetry.intake import Intake
from tests.unit.fleet.samples import telemetry
from wire.codec import encode_json
from wire.telemetry import Eviction, ResidentModel

OWN, OTHER, BASE = "a" * 64, "b" * 64, "c" * 64
TEAMS = frozenset({"own"})


def book() -> NameBook:
    """Knows both teams' versions, as the database does."""
    found = NameBook()
    found._names = {OWN: {"own": "own/titles@3"}, OTHER: {"rivals": "rivals/secret@1"}}
    return found


def resident(name: str, digest: str) -> ResidentModel:
    return ResidentModel(name, digest, 1, False, 0, 0, version=name)


def test_models_and_evictions_of_other_teams_have_no_name() -> None:
    now = time.time()
    models = [resident("base/model", BASE), resident("own/titles@3", OWN), resident("rivals/secret@1", OTHER)]
    evicted = [
        Eviction("model", OTHER, "It gave way to own/titles@3.", now, name="rivals/secret@1"),
        Eviction("model", OWN, "It gave way to rivals/secret@1.", now + 1, name="own/titles@3"),
        Eviction("model", BASE, "Idle for an hour.", now + 2, name="base/model"),
    ]
    intake = Intake()
    spoken = telemetry(worker="cpu", at=now, models=models, evicted=evicted)
    # the same words twice are one eviction each
    for _ in range(2):
        intake.add_telemetry(spoken, received=now)
    (state,) = intake.current_states()
    assert digests_of([state]) == {OWN, OTHER, BASE}
    shown = render_worker(state, names=book(), teams=TEAMS)
    assert [model.id for model in shown.models] == ["base/model", "own/titles@3", "another team’s bbbbbbbb"]
    assert [(row.name, row.reason) for row in shown.evicted] == [
        ("base/model", "Idle for an hour."),
        ("own/titles@3", "It gave way to another team’s version."),
        (None, "It gave way to own/titles@3."),
    ]
    assert b"secret" not in encode_json(shown)


def test_evictions_kept_of_one_worker_are_bounded() -> None:
    now, intake = time.time(), Intake()
    for second in range(5):
        rows = [Eviction("adapter", f"{second}-{number}", "room", now) for number in range(40)]
        intake.add_telemetry(telemetry(worker="cpu", at=now + second, evicted=rows), received=now + second)
    (state,) = intake.current_states()
    assert len(state.evicted) == 50
    assert state.evicted[-1].digest == "4-39"


def test_batches_of_the_last_minute_by_size() -> None:
    now, intake = time.time(), Intake()
    for second in range(70):
        spoken = telemetry(worker="cpu", at=now + second, batch_rows=[1, 64, 65, 500, 0], batch_adapters=[3])
        intake.add_telemetry(spoken, received=now + second)
    (state,) = intake.current_states()
    assert state.batch_rows == [60, 0, 0, 0, 0, 0, 60, 60, 60]
    assert state.batch_adapters == [0, 0, 60, 0, 0, 0, 0, 0, 0]
    assert [(bar.label, bar.share) for bar in bars(state.batch_adapters) if bar.count] == [("3–4", 100.0)]
    assert bars([]) == []


def test_refused_versions_have_names_for_their_own_teams_only() -> None:
    now, intake = time.time(), Intake()
    spoken = msgspec.structs.replace(telemetry(worker="cpu", at=now), refused={OWN: now + 60, OTHER: now + 120})
    intake.add_telemetry(spoken, received=now)
    (state,) = intake.current_states()
    assert digests_of([state]) == {OWN, OTHER}
    shown = render_worker(state, names=book(), teams=TEAMS)
    assert [(row.digest, row.version, row.until) for row in shown.refused] == [
        (OTHER, None, now + 120),
        (OWN, "own/titles@3", now + 60),
    ]


def test_refused_versions_are_bounded_to_the_longest() -> None:
    now, intake = time.time(), Intake()
    many = {f"digest-{number}": now + number for number in range(80)}
    intake.add_telemetry(msgspec.structs.replace(telemetry(worker="cpu", at=now), refused=many), received=now)
    (state,) = intake.current_states()
    assert list(state.refused) == [f"digest-{number}" for number in range(79, 29, -1)]
