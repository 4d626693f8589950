"""Uploads in a real browser: resumed after a lost line and after a reload, paused, cancelled, and not sent at all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tests.integration.pages.adapters import write_folder

pytestmark = pytest.mark.timeout(180)

CHUNKS = re.compile(r"/api/v1/uploads/[0-9a-f]{32}/$")
MIB = 1024**2


class Line:
    """What happens to chunks on their way: a file's first one passes, of the others some, then none until the line is
    back. Small files are one chunk, or were known before."""

    def __init__(self, page: Page, passing: int) -> None:
        self.passing = passing
        self.sent = 0
        page.route(CHUNKS, self._judge)

    def _judge(self, route: Route) -> None:
        if route.request.method == "PATCH" and route.request.headers["upload-offset"] != "0":
            if self.passing == 0:
                route.abort("connectionreset")
                return
            self.passing -= 1
            self.sent += 1
        route.continue_()


def large_folder(folder: Path, fill: bytes) -> list[Path]:
    """A folder of 13 MiB whose verdict does not matter here."""
    write_folder(folder, fill=fill[0] / 16)
    (folder / "optimizer-notes.txt").write_bytes(fill * (13 * MIB // len(fill)))
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def choose(page: Page, files: list[Path], name: str) -> None:
    page.goto("/upload/")
    page.set_input_files("#files", files)
    expect(page.locator("#preview")).to_be_visible()
    page.get_by_label("Name", exact=True).fill(name)


def test_a_lost_line_and_a_reload_cost_only_what_was_on_the_way(person: Page, tmp_path: Path) -> None:
    files = large_folder(tmp_path / "long", b"long line\n")
    line = Line(person, passing=1)
    choose(person, files, "long-line")
    person.locator("#send").click()
    row = person.locator("#progress li", has_text="optimizer-notes.txt")
    expect(row).to_contain_text("The connection was lost. Trying again in")
    expect(person.locator("#progress")).to_contain_text("Waiting for the connection")
    assert line.sent == 1

    person.reload()
    unfinished = person.locator("#unfinished")
    expect(unfinished).to_contain_text("acme/long-line")
    line.passing = 100
    choose(person, files, "long-line")
    person.locator("#send").click()
    expect(person.locator("#verdict")).to_contain_text("acme/long-line version 1", timeout=60_000)
    # of four chunks two had come
    assert line.sent == 3
    expect(person.locator("#unfinished")).to_be_hidden()

    # the same bytes again are recognised by their hash
    line.sent = 0
    choose(person, files, "long-line")
    expect(person.locator("#known")).to_contain_text("Already version 1 of acme/long-line")
    person.locator("#send").click()
    expect(person.locator("#known").get_by_role("link")).to_have_attribute(
        "href", "/adapters/acme/long-line/versions/#v1"
    )
    assert line.sent == 0


def test_pause_resume_and_cancel_work_by_keyboard(person: Page, tmp_path: Path) -> None:
    files = large_folder(tmp_path / "paused", b"paused line\n")
    line = Line(person, passing=1)
    choose(person, files, "paused")
    person.locator("#send").focus()
    person.keyboard.press("Enter")
    row = person.locator("#progress li", has_text="optimizer-notes.txt")
    expect(row).to_contain_text("Trying again in")
    every = person.get_by_role("button", name="Pause all")
    every.focus()
    person.keyboard.press("Enter")
    expect(row).to_contain_text("Paused")
    person.get_by_role("button", name="Resume all").focus()
    person.keyboard.press("Enter")
    expect(row).to_contain_text("Trying again in")
    one = row.get_by_role("button", name="Cancel optimizer-notes.txt")
    one.focus()
    person.keyboard.press("Enter")
    # nothing is left to send: the others become a version
    verdict = person.locator("#verdict")
    expect(verdict).to_contain_text("acme/paused version 1", timeout=60_000)
    names = person.evaluate(
        "async () => (await (await fetch('/api/v1/adapters/acme/paused/versions/1/')).json()).files.map((f) => f.path)"
    )
    assert "optimizer-notes.txt" not in names
    assert "adapter_model.safetensors" in names

    other = large_folder(tmp_path / "cancelled", b"cancelled line\n")
    line.passing = 1
    choose(person, other, "cancelled")
    person.locator("#send").click()
    expect(person.locator("#progress")).to_contain_text("Waiting for the connection")
    person.get_by_role("button", name="Cancel all").click()
    expect(person.locator("#progress")).to_be_hidden()
    person.reload()
    expect(person.locator("#upload-form")).to_be_visible()
    expect(person.locator("#content")).not_to_contain_text("acme/cancelled")


def test_an_unfinished_upload_is_discarded(person: Page, tmp_path: Path) -> None:
    Line(person, passing=1)
    choose(person, large_folder(tmp_path / "left", b"left behind\n"), "left-behind")
    person.locator("#send").click()
    expect(person.locator("#progress")).to_contain_text("Waiting for the connection")
    person.goto("/upload/")
    row = person.locator("#unfinished li", has_text="acme/left-behind")
    row.get_by_role("button", name="Discard the unfinished upload of acme/left-behind").click()
    expect(row).to_have_count(0)
    person.reload()
    expect(person.locator("#upload-form")).to_be_visible()
    expect(row).to_have_count(0)


def test_rows_to_measure_on_travel_beside_the_files(person: Page, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "measured", fill=0.77)
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"query": "reset", "positive": "hold the button"}\n' * 2)
    choose(person, [folder / "adapter_config.json", folder / "adapter_model.safetensors"], "measured")
    person.get_by_text("Measure it on your own rows").click()
    person.set_input_files("#evaluation", rows)
    person.get_by_label("Make it live only if it is better").check()
    person.locator("#send").click()
    expect(person.locator("#verdict")).to_contain_text("acme/measured version 1", timeout=60_000)
    said = person.evaluate(
        "async () => (await (await fetch('/api/v1/adapters/acme/measured/versions/1/evaluations/')).json()).results"
    )
    assert [(row["rows"], row["promote_if_better"]) for row in said] == [(2, True)]
