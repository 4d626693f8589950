"""Python client and ``shoal`` command. Needs neither Django nor torch."""

from client.api import Shoal
from client.errors import ApiError, Unreachable
from client.models import AdapterSummary, ReportRow, VersionInfo, WorkerInfo

__all__ = ["AdapterSummary", "ApiError", "ReportRow", "Shoal", "Unreachable", "VersionInfo", "WorkerInfo"]
