"""Ctrl+K and ``?`` in a real browser: found, chosen, closed by keyboard alone, and the focus comes back."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.timeout(180)


def test_the_palette_goes_to_what_was_typed(person: Page) -> None:
    person.goto("/keys/")
    person.keyboard.press("Control+k")
    field = person.get_by_role("combobox", name="Find an adapter")
    expect(field).to_be_focused()
    # the page has a list of options of its own
    options = person.get_by_role("listbox", name="Found").get_by_role("option")
    expect(options.filter(has_text="Fleet")).to_be_visible()
    field.fill("tickets")
    expect(options).to_have_count(6)
    expect(options.first).to_have_attribute("aria-selected", "true")
    person.keyboard.press("ArrowDown")
    expect(options.nth(1)).to_have_attribute("aria-selected", "true")
    # the list of the letters before must not decide
    field.fill("acme/support-search")
    person.keyboard.press("Enter")
    person.wait_for_url("**/adapters/acme/support-search/")


def test_escape_closes_and_the_focus_returns(person: Page) -> None:
    person.goto("/adapters/")
    opener = person.get_by_role("link", name="Find", exact=True)
    opener.focus()
    person.keyboard.press("Enter")
    expect(person.get_by_role("dialog")).to_be_visible()
    person.keyboard.press("Escape")
    expect(person.get_by_role("dialog")).to_have_count(0)
    expect(opener).to_be_focused()
    person.keyboard.press("?")
    expect(person.get_by_role("dialog")).to_contain_text("Find an adapter, model, worker or page")
    person.keyboard.press("Escape")
    expect(opener).to_be_focused()
    person.get_by_label("Search adapters").fill("what?")
    person.get_by_label("Search adapters").press("?")
    expect(person.get_by_role("dialog")).to_have_count(0)
