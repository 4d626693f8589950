"""Logs as readable single lines: time, level, event, then what it is about."""

from __future__ import annotations

from typing import Any

import structlog

_SHARED: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
    structlog.processors.StackInfoRenderer(),
]


def logging_config(level: str) -> dict[str, Any]:
    """``logging.config`` dictionary: Django's, Celery's and our own records through one renderer."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": _SHARED,
                "processors": [
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    structlog.dev.ConsoleRenderer(
                        colors=False, pad_event_to=0, exception_formatter=structlog.dev.plain_traceback
                    ),
                ],
            }
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            # each answered request is logged once, by the request id middleware
            "uvicorn.access": {"level": "WARNING"},
            "django.request": {"level": "ERROR"},
            # a line per tick and per task says nothing that the task itself does not say
            "celery.beat": {"level": "WARNING"},
            "celery.worker.strategy": {"level": "WARNING"},
            "celery.app.trace": {"level": "WARNING"},
            "nats": {"level": "WARNING"},
        },
    }


def configure_structlog() -> None:
    """Route structlog through the standard library's handlers."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
