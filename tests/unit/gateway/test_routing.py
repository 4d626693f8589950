"""Addresses, splits and refusals of routing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.routing import Target, pick_version, resolve, sticky_draw
from wire.errors import Code, ShoalError
from wire.jobs import Task
from wire.registry import AdapterRecord, ModelRecord, VersionRecord

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
MUTE = ModelRecord(id="org/Mute", digest="m", source="x", tasks=[], pool="p", max_tokens=8, dimension=None, created=0)


def ask(name: str, draw: float = 0.0, session: str | None = None) -> Target:
    """``name`` as team acme asks for it."""
    return resolve(
        name,
        team="acme",
        task=Task.EMBEDDINGS,
        models={"org/Base": BASE, "org/Mute": MUTE},
        adapters={record.name: record for record in (MINE, THEIRS, ORPHAN)},
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
    ],
)
def test_refusals_never_fall_back_to_the_base(name: str, code: Code, hint: str) -> None:
    with pytest.raises(ShoalError) as caught:
        ask(name)
    assert caught.value.code is code
    assert caught.value.info.param == "model"
    assert hint in (caught.value.info.hint or "")
    assert "other/tags" not in (caught.value.info.hint or "")
    assert len(caught.value.info.message) < 500


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
