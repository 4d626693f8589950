"""As a new user would: sign in, drop a folder, watch the verdict, run the snippet, watch the fleet page move."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.browser import open_browser
from tests.e2e.running import RunningStack
from tests.e2e.shipping import minilm_adapter

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def page() -> Iterator[Page]:
    with open_browser() as browser:
        yield browser.new_page()


def test_from_sign_in_to_a_moving_fleet_page(stack: RunningStack, page: Page, tmp_path: Path) -> None:
    page.goto(stack.endpoints.web)
    page.get_by_label("Username").fill(str(stack.credentials.username))
    page.get_by_label("Password").fill(str(stack.credentials.password))
    page.get_by_role("button", name="Sign in").click()

    page.get_by_role("link", name="Upload").first.click()
    page.set_input_files("#folder", minilm_adapter(tmp_path / "by-hand", seed=7))
    expect(page.locator("#preview .facts")).to_contain_text(re.compile(r"Rank\s*16"))
    page.locator("#adapter").fill("by-hand")
    page.locator("#send").click()
    verdict = page.locator("#verdict")
    expect(verdict.locator("> .card-head")).to_contain_text("Ready", timeout=60_000)
    expect(verdict.locator("tbody tr").last).to_contain_text("Pass")

    page.goto(f"{stack.endpoints.web}/adapters/admin/by-hand/")
    snippet = page.locator("#openai-text").inner_text()
    assert "admin/by-hand" in snippet
    done = subprocess.run(
        [sys.executable, "-c", snippet],
        env=os.environ | {"SHOAL_API_KEY": str(stack.credentials.api_key)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout.strip() == "384", done.stderr

    page.goto(f"{stack.endpoints.web}/fleet/")
    expect(page.locator("[data-pill-word]")).to_have_text("live", timeout=15_000)
    worker = page.locator("[data-worker]").first
    if worker.locator("[data-more]").is_visible():
        # the card shows the adapters with most hits; other tests left theirs on the device
        worker.locator("[data-more] a").click()
        expect(page.get_by_role("main")).to_contain_text("admin/by-hand@1", timeout=15_000)
        page.go_back()
    else:
        expect(worker.locator("[data-adapters]")).to_contain_text("admin/by-hand@1", timeout=15_000)
    tokens = worker.locator('[data-f="tokens"]')
    expect(tokens).to_have_text("0", timeout=15_000)
    _send_load(stack)
    expect(tokens).not_to_have_text("0", timeout=15_000)


def _send_load(stack: RunningStack) -> None:
    headers = {"Authorization": f"Bearer {stack.credentials.api_key}"}
    with httpx.Client(base_url=stack.endpoints.gateway, headers=headers, timeout=60) as client:
        texts = [f"sentence number {number} keeps the device busy for a while" for number in range(256)]
        assert client.post("/v1/embeddings", json={"model": "admin/by-hand", "input": texts}).status_code == 200
