"""Two versions of one adapter side by side: what they are, what was found, how they serve."""

from __future__ import annotations

from dataclasses import dataclass

from loras.metrics.queries import AdapterMetrics, read_metrics
from loras.models import Adapter, EvaluationRun, Version
from loras.queries import get_version
from loras.registry import facts_of
from wire.errors import Code, ShoalError

METRICS_MINUTES = 24 * 60


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a comparison; empty text where a version has no such thing."""

    group: str
    what: str
    before: str
    after: str

    @property
    def differs(self) -> bool:
        return self.before != self.after


def compare_versions(adapter: Adapter, before: int, after: int) -> list[Line]:
    """All lines, in groups: configuration, content, report, evaluation, metrics of the last day. Raises
    ``ShoalError``: VERSION_NOT_FOUND, INVALID_REQUEST for one version with itself."""
    if before == after:
        raise ShoalError(Code.INVALID_REQUEST, f"Version {before} is the same as itself.", param="with")
    metrics = read_metrics(adapter, minutes=METRICS_MINUTES)
    columns = [_column(get_version(adapter, number), metrics) for number in (before, after)]
    names = list(dict.fromkeys([*columns[0], *columns[1]]))
    return [Line(*name, columns[0].get(name, ""), columns[1].get(name, "")) for name in names]


def _column(version: Version, metrics: AdapterMetrics) -> dict[tuple[str, str], str]:
    facts = facts_of(version)
    found = {
        ("Configuration", "Base model"): facts.base_model,
        ("Configuration", "Rank"): str(facts.rank or ""),
        ("Configuration", "Alpha"): f"{facts.alpha:g}" if facts.alpha else "",
        ("Configuration", "Targets"): ", ".join(facts.targets),
        ("Configuration", "Modules"): str(facts.modules or ""),
        ("Configuration", "Tasks"): ", ".join(facts.tasks),
        ("Configuration", "Labels"): ", ".join(facts.labels),
        ("Configuration", "Serving"): version.mode,
        ("Configuration", "Why"): version.mode_reason,
        ("Content", "State"): version.state,
        ("Content", "Tensors"): str(facts.tensors or ""),
        ("Content", "Parameters"): f"{facts.parameters:,}" if facts.parameters else "",
        ("Content", "Number type"): facts.dtype,
        ("Content", "Upload bytes"): f"{version.size_bytes:,}",
        ("Content", "Digest"): version.digest[:16],
        ("Content", "Uploaded"): f"{version.created_at:%Y-%m-%d %H:%M}",
        ("Content", "By"): version.created_by.get_username() if version.created_by else "",
        ("Content", "Message"): version.message,
    }
    for row in (version.report or {}).get("rows", []):
        outcome = row["outcome"] + (f" ({row['code']})" if row["code"] != "OK" else "")
        found["Report", str(row["check"]).capitalize()] = outcome
    run = EvaluationRun.objects.filter(version=version, state="done").order_by("-pk").first()
    for line in run.results if run is not None else []:
        if line["role"] == "new":
            found |= {("Evaluation", name): f"{value:.3f}" for name, value in line["metrics"].items()}
    served = next((row.figures for row in metrics.versions if row.number == version.number), None)
    if served is not None:
        found["Last 24 hours", "Requests"] = f"{served.requests:,}"
        found["Last 24 hours", "Errors"] = "" if served.error_rate is None else f"{served.error_rate:.2%}"
        found["Last 24 hours", "p50"] = "" if served.p50_ms is None else f"{served.p50_ms:.0f} ms"
        found["Last 24 hours", "p95"] = "" if served.p95_ms is None else f"{served.p95_ms:.0f} ms"
    return found
