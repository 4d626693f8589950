"""Django project of the control plane. The Celery application is loaded with it so that tasks bind to it."""

from controlplane.celery import app as celery_app

__all__ = ["celery_app"]
