"""Celery: ids only, late acknowledgement, our own rows are the truth and Redis may be emptied at any time."""

from __future__ import annotations

from typing import Any

from kombu.entity import Queue

from controlplane.settings.environment import Environment, load_environment

VALIDATE_QUEUE = "validate"
DEFAULT_QUEUE = "default"


def celery_config(environment: Environment) -> dict[str, Any]:
    """Lower-case Celery settings. The visibility timeout is well above the longest task, a validation."""
    return {
        "broker_url": environment.redis_url,
        "broker_connection_retry_on_startup": True,
        "broker_transport_options": {
            "visibility_timeout": max(600, int(environment.validation_timeout_s * 4)),
            "global_keyprefix": f"{environment.redis_prefix}:celery:",
            # a request must not hang when Redis is away: the sweeper dispatches again
            "socket_connect_timeout": 2,
            "socket_timeout": 30,
        },
        "broker_connection_timeout": 2,
        "task_publish_retry": False,
        "task_serializer": "json",
        "accept_content": ["json"],
        "task_ignore_result": True,
        "task_store_errors_even_if_ignored": False,
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        "task_track_started": False,
        "task_default_queue": DEFAULT_QUEUE,
        # a worker started without -Q serves both
        "task_queues": [Queue(name) for name in (DEFAULT_QUEUE, VALIDATE_QUEUE)],  # type: ignore[no-untyped-call]
        # one evaluation runs at a time, so that it never takes the place of every validator
        "task_routes": {name: {"queue": VALIDATE_QUEUE} for name in ("loras.validate_version", "loras.run_evaluation")},
        "worker_prefetch_multiplier": 1,
        "worker_hijack_root_logger": False,
        "worker_cancel_long_running_tasks_on_connection_loss": True,
        "beat_schedule_filename": str(environment.home / "celerybeat-schedule"),
        "beat_schedule": {
            "drain-outbox": {"task": "events.drain_outbox", "schedule": 5.0, "options": {"expires": 5}},
            "reconcile-registry": {"task": "events.reconcile_registry", "schedule": 60.0, "options": {"expires": 60}},
            "sweep-versions": {"task": "loras.sweep_versions", "schedule": 10.0, "options": {"expires": 10}},
            "sweep-evaluations": {"task": "loras.sweep_evaluations", "schedule": 10.0, "options": {"expires": 10}},
            "judge-canaries": {"task": "loras.judge_canaries", "schedule": 5.0, "options": {"expires": 5}},
            "sweep-incoming": {"task": "loras.sweep_incoming", "schedule": 600.0, "options": {"expires": 600}},
        },
    }


CELERY = celery_config(load_environment())
