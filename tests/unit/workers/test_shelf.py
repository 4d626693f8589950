"""The shelf of base models: what is pinned, what left the pool, and when credit may start."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from tests.unit.workers.bench import Bench
from wire.errors import Code, ErrorInfo
from wire.frames import Pin, Pull
from wire.registry import ModelRecord
from workers.engine import shelf as shelf_module
from workers.engine.shelf import Shelf


def settled(shelf: Shelf) -> bool:
    return shelf.settled


def pinned(bench: Bench) -> bool:
    return bench.shelved.pinned


def named(record: ModelRecord, name: str, *, pinned: bool = False) -> ModelRecord:
    return msgspec.structs.replace(record, id=name, pinned=pinned)


@pytest.fixture
def bench(tiny_record: ModelRecord) -> Iterator[Bench]:
    made = Bench(tiny_record)
    yield made
    made.end()


def test_credit_waits_for_the_first_pinned_models_and_for_no_later_one(tiny_record: ModelRecord, bench: Bench) -> None:
    one, two = named(tiny_record, "one", pinned=True), named(tiny_record, "two", pinned=True)
    shelf = Shelf()
    assert not settled(shelf)
    assert shelf.set_records([one]) == [one]
    assert not settled(shelf)
    shelf.fail("one", ErrorInfo(Code.MODEL_UNLOADABLE, "no file"))
    assert settled(shelf)
    assert shelf.set_records([one, two]) == [one, two]
    assert settled(shelf), "a model that was registered later takes the credit of those served"
    # the same through the frames a sidecar sees
    assert bench.shelf.set_records([tiny_record, two]) == [two]
    before = len([frame for frame in bench.frames if isinstance(frame, Pull)])
    work = bench.admit(["fish"])
    bench.run_pass(work)
    bench.answers.offer_room()
    bench.end()
    assert len([frame for frame in bench.frames if isinstance(frame, Pull)]) > before


def test_the_registry_unpins_and_an_operator_has_the_last_word(tiny_record: ModelRecord, bench: Bench) -> None:
    kept, free = named(tiny_record, tiny_record.id, pinned=True), named(tiny_record, tiny_record.id)
    bench.shelf.set_records([kept])
    assert pinned(bench)
    bench.shelf.set_records([free])
    assert not pinned(bench)
    bench.shelf.set_records([kept])
    bench.residents.obey(Pin(tiny_record.id, pinned=False))
    bench.shelf.set_records([kept])
    assert not pinned(bench), "the operator's unpin was overruled by the next list"
    bench.residents.obey(Pin(tiny_record.id))
    bench.shelf.set_records([free])
    assert pinned(bench)


def test_a_model_that_left_the_pool_is_freed_after_its_jobs_but_not_on_a_flap(
    tiny_record: ModelRecord, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = named(tiny_record, "other")
    work = bench.admit(["fish"])
    bench.shelf.set_records([])
    bench.shelf.set_records([tiny_record, other])
    monkeypatch.setattr(shelf_module, "UNLISTED_KEPT_S", 0.0)
    bench.residents.drop_unlisted()
    assert bench.shelf.get(tiny_record.id) is not None, "a list that came back was not noticed"
    bench.shelf.set_records([other])
    bench.residents.drop_unlisted()
    assert bench.shelf.get(tiny_record.id) is not None, "freed under a job"
    bench.run_pass(work)
    assert bench.wait_for(work.job)[0].error is None
    monkeypatch.setattr(shelf_module, "UNLISTED_KEPT_S", 3600.0)
    bench.residents.drop_unlisted()
    assert bench.shelf.get(tiny_record.id) is not None, "freed at once"
    monkeypatch.setattr(shelf_module, "UNLISTED_KEPT_S", 0.0)
    bench.residents.drop_unlisted()
    assert bench.shelf.get(tiny_record.id) is None
