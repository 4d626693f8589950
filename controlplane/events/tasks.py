"""Celery tasks of the outbox."""

from __future__ import annotations

from celery import shared_task


@shared_task(name="events.drain_outbox")  # type: ignore[untyped-decorator]
def drain_outbox() -> None:
    """Tell the data plane what changed."""
    from controlplane.events.registry import drain_outbox_rows

    drain_outbox_rows()


@shared_task(name="events.reconcile_registry")  # type: ignore[untyped-decorator]
def reconcile_registry() -> None:
    """Compare all KV entries with the database."""
    import structlog

    from controlplane.events.buckets import BucketsAway
    from controlplane.events.registry import reconcile_all

    try:
        reconcile_all()
    except BucketsAway as error:
        structlog.get_logger("controlplane.registry").warning("registry not compared", error=str(error))
