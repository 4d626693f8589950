"""An upload with rows of its own is measured by the real fleet, and goes live only when it is better."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.running import RunningStack, eventually
from tests.e2e.shipping import minilm_adapter, push_ready

TOPICS = ("how to bleed the brakes", "opening hours on sunday", "reset a forgotten password", "return a broken lamp")
ROWS = "\n".join(json.dumps({"query": topic, "positive": f"Our guide: {topic}."}) for topic in TOPICS)


def test_a_version_is_measured_beside_live_and_base(stack: RunningStack, tmp_path: Path) -> None:
    push_ready(stack, minilm_adapter(tmp_path / "first", seed=1), "admin/measured")
    folder = minilm_adapter(tmp_path / "second", seed=2)
    headers = {"Authorization": f"Bearer {stack.credentials.api_key}"}
    with httpx.Client(base_url=f"{stack.endpoints.web}/api/v1/", headers=headers, timeout=60) as api:
        files: list[Any] = [("files[]", (path.name, path.read_bytes())) for path in sorted(folder.iterdir())]
        files.append(("evaluation", ("rows.jsonl", ROWS.encode())))
        sent = api.post("adapters/", data={"name": "admin/measured", "promote": "if_better"}, files=files)
        assert sent.status_code == 201, sent.text
        address = "adapters/admin/measured/versions/2/evaluations/"

        def run() -> dict[str, Any]:
            found: dict[str, Any] = api.get(address).json()["results"][0]
            return found

        eventually(lambda: run()["state"] in {"done", "failed"}, timeout_s=180, what="a measurement")
        measured = run()
        assert measured["state"] == "done", measured
        table = {row["role"]: row for row in measured["results"]}
        assert set(table) == {"new", "live", "base"}
        assert all(0 < row["metrics"]["mrr"] <= 1 for row in table.values()), table
        # each query's words are in its own document: the base model finds them
        assert table["base"]["metrics"]["recall_at_1"] == 1.0
        better = table["new"]["metrics"]["mrr"] > table["live"]["metrics"]["mrr"]
        live = api.get("adapters/admin/measured/").json()["aliases"]["live"]
        assert live == {"2" if better else "1": 100}
        assert measured["decision"].startswith("Promoted" if better else "Not promoted")
