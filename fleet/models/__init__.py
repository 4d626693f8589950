"""Base models, and the workers that were seen."""

from fleet.models.base_models import BaseModel
from fleet.models.workers import UtilizationMinute, Worker

__all__ = ["BaseModel", "UtilizationMinute", "Worker"]
