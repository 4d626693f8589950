"""Addresses, splits and refusals of routing."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.routing import Target, pick_version, resolve, sticky_draw, visible_names
from wire.errors import Code, ShoalError
from wire.jobs import Task
from wire.registry import AdapterRecord, Mode, ModelRecord, VersionRecord

BASE = ModelRecord(
    id="org/Base",
    digest="b",
    source="package:x",
    tasks=[Task.EMBEDDINGS],
    pool="p",
    max_tokens=8,
    dimension=2,
    created=0,
)
VERSIONS = {n: VersionRecord(number=n, digest=f"d{n}", size_bytes=1, rank=1) for n in (1, 2)}
MINE = AdapterRecord(
    name="acme/tags",
    team="acme",
    base_model="org/Base",
    versions=VERSIONS,
    aliases={"live": {1: 1}, "half": {1: 1, 2: 1}, "old": {7: 5, 2: 1}, "none": {7: 1}, "zero": {1: 0}},
)
THEIRS = AdapterRecord(
    name="other/tags", team="other", base_model="org/Base", versions=VERSIONS, aliases={"live": {1: 1}}
)
ORPHAN = AdapterRecord(name="acme/orphan", team="acme", base_model="gone", versions=VERSIONS, aliases={"live": {1: 1}})
OWN = AdapterRecord(
    name="acme/own",
    team="acme",
    base_model="org/Base",
    versions={
        1: VersionRecord(number=1, digest="o1", size_bytes=1, rank=1, mode=Mode.MERGED),
        2: VersionRecord(number=2, digest="o2", size_bytes=1, rank=0, mode=Mode.FULL, tasks=[Task.CLASSIFY]),
        3: VersionRecord(number=3, digest="o3", size_bytes=1, rank=0, mode=Mode.FULL),
        4: VersionRecord(number=4, digest="o4", size_bytes=1, rank=1, tasks=[Task.TOKEN_CLASSIFY, Task.EMBEDDINGS]),
    },
    aliases={"live": {1: 1}},
)


def own(number: int, digest: str, tasks: list[Task]) -> ModelRecord:
    """The model record of a version of ``acme/own``."""
    return ModelRecord(
        id=f"acme/own@{number}", digest=digest, source="artifact:", tasks=tasks, pool="p", max_tokens=8,
        dimension=3, created=0, pinned=False, team="acme", artifact=digest,
    )  # fmt: skip


MERGED = own(1, "o1", [Task.EMBEDDINGS])
STALE = own(2, "of a deleted adapter of this name", [Task.CLASSIFY])
FOREIGN = msgspec.structs.replace(own(3, "x", [Task.EMBEDDINGS]), id="other/own@3", team="other")
MUTE = ModelRecord(id="org/Mute", digest="m", source="x", tasks=[], pool="p", max_tokens=8, dimension=None, created=0)


def ask(
    name: str, draw: float = 0.0, session: str | None = None, tasks: tuple[Task, ...] = (Task.EMBEDDINGS,)
) -> Target:
    """``name`` as team acme asks for it."""
    return resolve(
        name,
        team="acme",
        tasks=tasks,
        models={model.id: model for model in (BASE, MUTE, MERGED, STALE, FOREIGN)},
        adapters={record.name: record for record in (MINE, THEIRS, ORPHAN, OWN)},
        draw=draw,
        session=session,
    )


@pytest.mark.parametrize(
    ("name", "draw", "version", "digest"),
    [
        ("org/Base", 0.0, "org/Base", None),
        ("acme/tags", 0.99, "acme/tags@1", "d1"),
        ("acme/tags@2", 0.0, "acme/tags@2", "d2"),
        ("acme/tags:half", 0.49, "acme/tags@1", "d1"),
        ("acme/tags:half", 0.51, "acme/tags@2", "d2"),
        ("acme/tags:old", 0.0, "acme/tags@2", "d2"),
    ],
)
def test_addresses(name: str, draw: float, version: str, digest: str | None) -> None:
    target = ask(name, draw)
    assert (target.version, target.adapter_digest) == (version, digest)
    assert target.model is BASE
    assert target.digest == (digest or "b")


@pytest.mark.parametrize(
    ("name", "code", "hint"),
    [
        ("acme/tag", Code.MODEL_NOT_FOUND, "acme/tags"),
        ("other/tags", Code.MODEL_NOT_FOUND, "acme/tags"),
        ("other/tags@1", Code.MODEL_NOT_FOUND, "acme/tags"),
        ("completely-else", Code.MODEL_NOT_FOUND, "/v1/models"),
        ("acme/tags@", Code.MODEL_NOT_FOUND, ""),
        ("acme/tags@1:live", Code.MODEL_NOT_FOUND, ""),
        ("x" * 400, Code.MODEL_NOT_FOUND, ""),
        ("acme/tags@3", Code.VERSION_NOT_FOUND, ""),
        ("acme/tags:beta", Code.ALIAS_NOT_FOUND, ""),
        ("acme/tags:none", Code.VERSION_NOT_FOUND, ""),
        ("acme/tags:zero", Code.VERSION_NOT_FOUND, ""),
        ("acme/orphan", Code.MODEL_UNLOADABLE, ""),
        ("org/Mute", Code.TASK_UNSUPPORTED, ""),
        ("acme/own@2", Code.MODEL_UNLOADABLE, ""),
        ("acme/own@3", Code.MODEL_UNLOADABLE, ""),
        ("other/own@3", Code.MODEL_NOT_FOUND, ""),
    ],
)
def test_refusals_never_fall_back_to_the_base(name: str, code: Code, hint: str) -> None:
    with pytest.raises(ShoalError) as caught:
        ask(name)
    assert caught.value.code is code
    assert caught.value.info.param == "model"
    assert hint in (caught.value.info.hint or "")
    assert "other/" not in (caught.value.info.hint or "")
    assert len(caught.value.info.message) < 500


def test_versions_with_weights_of_their_own_run_on_their_own_record() -> None:
    target = ask("acme/own")
    assert (target.model, target.adapter_digest, target.digest) == (MERGED, None, "o1")
    assert (target.version, target.alias) == ("acme/own@1", "live")
    assert ask("acme/own@1").alias is None


def test_the_task_is_the_first_that_the_version_serves() -> None:
    wanted = (Task.CLASSIFY, Task.TOKEN_CLASSIFY)
    target = ask("acme/own@4", tasks=wanted)
    assert (target.task, target.model, target.adapter_digest) == (Task.TOKEN_CLASSIFY, BASE, "o4")
    with pytest.raises(ShoalError, match="classify or token-classify; it serves: embeddings"):
        ask("acme/tags", tasks=wanted)


def test_records_of_versions_are_no_names() -> None:
    names = visible_names("acme", {model.id: model for model in (BASE, MERGED, FOREIGN)}, {"acme/own": OWN})
    assert names == ["org/Base", "acme/own"]


weights_of = st.dictionaries(st.integers(1, 50), st.integers(0, 1000), max_size=6)
draws = st.floats(0, 1, exclude_max=True)


@given(weights_of, draws)
def test_only_versions_with_weight_are_picked(weights: dict[int, int], draw: float) -> None:
    picked = pick_version(weights, draw)
    if sum(weights.values()) == 0:
        assert picked is None
    else:
        assert weights[picked or 0] > 0


@given(weights_of.filter(lambda weights: sum(weights.values()) > 0))
def test_shares_equal_weights(weights: dict[int, int]) -> None:
    total = sum(weights.values())
    counts = dict.fromkeys(weights, 0)
    for step in range(total):
        counts[pick_version(weights, (step + 0.5) / total) or 0] += 1
    assert counts == weights


@given(st.integers(0, 100), st.integers(0, 100), draws)
def test_widening_the_newest_never_sends_a_session_back(share: int, wider: int, draw: float) -> None:
    low, high = sorted((share, wider))
    before = pick_version({1: 100 - low, 2: low}, draw)
    after = pick_version({1: 100 - high, 2: high}, draw)
    assert (before, after) != (2, 1)


@given(st.text(), st.text())
def test_sessions_are_stable(adapter: str, session: str) -> None:
    draw = sticky_draw(adapter, session)
    assert 0 <= draw < 1
    assert draw == sticky_draw(adapter, session)


def test_session_decides_and_the_random_number_does_not() -> None:
    for number in range(20):
        session = f"user {number}"
        assert ask("acme/tags:half", 0.0, session) == ask("acme/tags:half", 0.99, session)
    assert {ask("acme/tags:half", session=f"user {number}").version for number in range(40)} == {
        "acme/tags@1",
        "acme/tags@2",
    }
