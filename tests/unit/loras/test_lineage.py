"""The drawing of an adapter: what is connected with what, and boxes that never meet."""

from __future__ import annotations

import datetime as dt
from itertools import combinations

from loras.lineage import BOX_HEIGHT, draw_lineage
from loras.metrics.figures import Figures
from loras.metrics.glance import Glance
from loras.page_rows import AdapterPage, AliasRow, VersionRow
from loras.residency import ResidentRow
from loras.states import State

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def version(number: int, *aliases: str) -> VersionRow:
    return VersionRow(
        number=number, state=State.READY, digest=f"{number:064x}", mode="packed", mode_reason="", size_bytes=1,
        message="", created_by="", created_at=NOW, ready_at=NOW, duplicate_of=None, report=None, aliases=list(aliases),
    )  # fmt: skip


def page(*versions: VersionRow, split: dict[int, int], base_model: str = "org/a-base") -> AdapterPage:
    return AdapterPage(
        team="acme", name="search", base_model=base_model, created_by="", created_at=NOW, updated_at=NOW,
        aliases=[AliasRow("live", split, NOW)] if split else [], versions=list(versions), kind="lora",
        usage=Glance(Figures(), None, ""), may_push=True,
    )  # fmt: skip


def on(worker: str, number: int, *, stale: bool = False) -> ResidentRow:
    return ResidentRow(number, worker, f"box/{worker}", "device", NOW, 7, pinned=False, stale=stale)


def test_base_versions_and_workers_are_connected() -> None:
    adapter = page(version(3), version(2, "live"), version(1, "live"), split={1: 90, 2: 10})
    drawn = draw_lineage(adapter, [on("a", 2), on("a", 1), on("b", 1), on("c", 1, stale=True)])
    assert drawn is not None
    assert [(box.title, box.note) for box in drawn.boxes] == [
        ("a-base", "base model of org"), ("version 2", "live 10 % · packed"), ("version 1", "live 90 % · packed"),
        ("box/a", "device · 14 hits"), ("box/b", "device · 7 hits"), ("box/c", "not heard of"),
    ]  # fmt: skip
    # base to both, 2 to a, 1 to a and b; nothing is known of what a silent worker holds
    assert len(drawn.lines) == 5
    assert max(box.y for box in drawn.boxes) + BOX_HEIGHT == drawn.height


def test_boxes_never_meet_however_many_there_are() -> None:
    versions = [version(number, "live") for number in range(20, 0, -1)]
    drawn = draw_lineage(page(*versions, split={20: 1}), [on(f"w{number}", 20) for number in range(9)])
    assert drawn is not None
    assert len(drawn.boxes) == 13
    for one, other in combinations(drawn.boxes, 2):
        assert one.x != other.x or abs(one.y - other.y) > BOX_HEIGHT


def test_nothing_ready_is_nothing_drawn_and_a_fine_tune_has_no_base() -> None:
    assert draw_lineage(page(split={}), []) is None
    alone = draw_lineage(page(version(1, "live"), split={1: 1}, base_model=""), [])
    assert alone is not None
    assert alone.boxes[0].note == "no base model"
