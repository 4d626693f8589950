"""The Metrics tab: what requests say of the versions, as a table and a chart."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from controlplane.accounts.principal import Principal
from controlplane.pages import page
from loras.metrics.queries import AdapterMetrics, read_metrics
from loras.page_queries import page_of
from loras.queries import get_adapter
from loras.services import open_hold
from loras.views import render_tab

RANGES = (("15", "15 min"), ("60", "1 h"), ("1440", "24 h"), ("10080", "7 d"))
DEFAULT_RANGE = "60"
CHART_VERSIONS = 6


@require_GET
@page
def adapter_metrics(request: HttpRequest, principal: Principal, team: str, name: str) -> HttpResponse:
    """Versions and aliases side by side over the range in the address."""
    row = get_adapter(principal, team, name)
    wanted = request.GET.get("range", DEFAULT_RANGE)
    minutes = wanted if wanted in dict(RANGES) else DEFAULT_RANGE
    metrics = read_metrics(row, minutes=int(minutes))
    shown = {
        "metrics": metrics,
        "chart": chart_columns(metrics),
        "ranges": RANGES,
        "range": minutes,
        "holds": list(row.holds.select_related("resumed_by")[:10]),
        "open_holds": [hold for alias in row.aliases.all() if (hold := open_hold(row, alias.name)) is not None],
    }
    return render_tab(request, page_of(principal, row), "metrics", **shown)


def chart_columns(metrics: AdapterMetrics) -> dict[str, object]:
    """The newest versions' points for the script, by version."""
    series = metrics.series[-CHART_VERSIONS:]
    return {
        "at": metrics.at,
        "step_s": metrics.step_minutes * 60,
        "versions": [
            {
                "number": row.number,
                "requests_per_s": row.requests_per_s,
                "p95_ms": row.p95_ms,
                "error_rate": row.error_rate,
            }
            for row in series
        ],
    }
