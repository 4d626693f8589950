"""Celery tasks of versions. They carry ids only and may run twice."""

from __future__ import annotations

import structlog
from celery import shared_task

log = structlog.get_logger("loras.tasks")


@shared_task(name="loras.validate_version")  # type: ignore[untyped-decorator]
def validate_version(version_id: int) -> None:
    """Validate one version unless somebody else does."""
    from loras.services import abandon_claim, claim_validation, validate_claimed

    claim = claim_validation(version_id=version_id)
    if claim is None:
        return
    try:
        validate_claimed(claim)
    except Exception as error:  # the edge of the worker's loop: any error ends in a state of the version
        log.exception("validation failed", version=str(claim.version), attempt=claim.attempt)
        abandon_claim(claim=claim, error=error)


@shared_task(name="loras.sweep_versions")  # type: ignore[untyped-decorator]
def sweep_versions() -> None:
    """Move on versions that wait too long."""
    from loras import services

    services.sweep_versions()


@shared_task(name="loras.sweep_incoming")  # type: ignore[untyped-decorator]
def sweep_incoming() -> None:
    """Delete left-over files and content that nothing uses."""
    from loras import services
    from loras.metrics.rows import prune_usage
    from loras.uploads.sweep import sweep_uploads

    services.sweep_incoming_files()
    sweep_uploads()
    services.discard_unused_content()
    services.purge_deleted()
    prune_usage()


@shared_task(name="loras.judge_canaries")  # type: ignore[untyped-decorator]
def judge_canaries() -> None:
    """Hold canaries that fail or are slow."""
    from loras.metrics import canaries

    canaries.judge_canaries()


@shared_task(name="loras.run_evaluation")  # type: ignore[untyped-decorator]
def run_evaluation(run_id: int) -> None:
    """Measure one version unless somebody else does, then hand on the next one."""
    from loras.evaluation.running import run_claimed
    from loras.services.evaluations import claim_evaluation, dispatch_next, release_run

    claim = claim_evaluation(run_id=run_id)
    if claim is None:
        return
    try:
        run_claimed(claim)
    except Exception as error:  # the edge of the worker's loop: any error ends in a state of the run
        log.exception("evaluation failed", run=str(claim.run), attempt=claim.run.attempts)
        release_run(claim=claim, problem=f"The server could not measure it: {type(error).__name__}.")
    dispatch_next()


@shared_task(name="loras.sweep_evaluations")  # type: ignore[untyped-decorator]
def sweep_evaluations() -> None:
    """Move on evaluations that wait too long."""
    from loras.services.evaluations import sweep_evaluations as sweep

    sweep()
