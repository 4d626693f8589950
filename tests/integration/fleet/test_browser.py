"""A real browser on the fleet page: figures move, silence turns grey, a killed server is found again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Page, async_playwright, expect

from fleet import figures
from tests.browser import FLAGS, chromium
from tests.integration.fleet.site import PASSWORD, Feed, Site, feeding

CARD = '[data-worker="box.seen"]'
SLOW_MS = 30_000


@pytest.fixture
async def page(site: Site) -> AsyncIterator[Page]:
    """A signed-in page whose script errors fail the test."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        opened = await browser.new_page()
        errors: list[str] = []
        opened.on("pageerror", lambda error: errors.append(str(error)))
        await opened.goto(f"{site.url}/login/?next=/fleet/")
        await opened.fill("[name=username]", "operator")
        await opened.fill("[name=password]", PASSWORD)
        await opened.press("[name=password]", "Enter")
        await opened.wait_for_selector("[data-fleet]")
        yield opened
        await browser.close()
        assert errors == []


async def test_figures_move_then_go_stale_and_a_killed_server_is_found_again(site: Site, page: Page) -> None:
    pill = page.locator("[data-pill-word]")
    tokens = page.locator(f'{CARD} [data-f="tokens"]')
    async with feeding(Feed(site.env["NATS_URL"], workers=("seen",))):
        await expect(pill).to_have_text("live", timeout=SLOW_MS)
        await expect(page.locator(f"{CARD} .worker-badge")).to_have_text("Ready", timeout=SLOW_MS)
        shown: set[str] = set()
        async with asyncio.timeout(30):
            while len(shown) < 3:
                shown.add(await tokens.inner_text())
                await asyncio.sleep(0.3)
        # unknown is a dash, never 0
        assert await page.locator(f'{CARD} [data-f="utilization"]').inner_text() == figures.UNKNOWN
        assert await page.locator(f"{CARD} .plot canvas").count() == 5
        await expect(page.locator(f"{CARD} .bin")).to_have_count(9)
        await asyncio.to_thread(site.web.restart)
        await expect(pill).to_have_text("reconnecting", timeout=SLOW_MS)
        await asyncio.to_thread(site.wait_ready)
        await expect(pill).to_have_text("live", timeout=60_000)
        before = await tokens.inner_text()
        await expect(tokens).not_to_have_text(before, timeout=SLOW_MS)
    await expect(page.locator(f"{CARD} .worker-badge")).to_have_text("Stale", timeout=SLOW_MS)
    await expect(page.locator(f"{CARD} .worker-seen")).to_contain_text("last seen")
    assert "is-stale" in (await page.locator(CARD).get_attribute("class") or "")


async def test_script_and_server_write_the_same_texts(site: Site, page: Page) -> None:
    values = [None, 0, 0.004, 0.34, 1, 3.27, 9.94, 9.96, 59, 61, 99.9, 182, 999.4, 999.6, 3725, 12_400, 90_061, 999_600,
              3.1e6, 8.4e9, 8e10]  # fmt: skip
    script = """async (values) => {
        const figures = await import("/static/fleet/figures.js");
        const names = ["percent", "amount", "size", "duration", "age"];
        return values.map((value) => names.map((name) => figures[name](value)))
    }"""
    by_script = await page.evaluate(script, values)
    by_server = [
        [write(value) for write in (figures.percent, figures.amount, figures.size, figures.duration, figures.age)]
        for value in values
    ]
    # exact halves may round either way; no value above is one
    assert by_script == by_server


async def test_the_table_is_there_without_scripts(site: Site) -> None:
    async with feeding(Feed(site.env["NATS_URL"], workers=("plain",))), async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        context = await browser.new_context(java_script_enabled=False, viewport={"width": 390, "height": 844})
        page = await context.new_page()
        await page.goto(f"{site.url}/login/?next=/fleet/")
        await page.fill("[name=username]", "operator")
        await page.fill("[name=password]", PASSWORD)
        await page.press("[name=password]", "Enter")
        async with asyncio.timeout(30):
            while await page.locator('[data-worker="box.plain"] .badge-ok').count() == 0:
                await asyncio.sleep(0.5)
                await page.goto(f"{site.url}/fleet/")
        assert await page.locator('[data-worker="box.plain"] [data-f="busy"]').inner_text() == "50"
        await browser.close()
