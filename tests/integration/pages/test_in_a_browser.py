"""What a person sees in a real browser: drop, preview, verdict, live changes, themes, keyboard, phone width."""

from __future__ import annotations

import base64
import re
import zipfile
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.integration.controlplane.adapters import lora_files
from tests.integration.controlplane.site import Site
from tests.integration.pages.adapters import write_folder

pytestmark = pytest.mark.timeout(240)

# A dropped folder: the browser's own entries, filled by the page, since a test cannot drag from a desktop.
DROP_FOLDER = """async (files) => {
  const file = ([path, base64]) => {
    const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
    const name = path.slice(path.lastIndexOf('/') + 1);
    return { isFile: true, fullPath: '/' + path, file: (done) => done(new File([bytes], name)) };
  };
  const parts = files.map(file);
  const folder = { isFile: false, fullPath: '/' + files[0][0].split('/')[0], createReader() {
    // a reader gives its entries in parts and then none
    return { readEntries: (done) => done(parts.splice(0, 2)) };
  } };
  const transfer = { types: ['Files'], files: [], items: [{ webkitGetAsEntry: () => folder }], dropEffect: 'none' };
  for (const kind of ['dragenter', 'dragover', 'drop']) {
    const event = new Event(kind, { bubbles: true, cancelable: true });
    Object.defineProperty(event, 'dataTransfer', { value: transfer });
    dispatchEvent(event);
    if (kind === 'dragover') window.coverShown = !document.getElementById('drop-cover').hidden;
  }
}"""
PHONE_PAGES = [
    "/adapters/", "/upload/", "/keys/", "/password/", "/adapters/acme/support-search/",
    "/adapters/acme/support-search/versions/", "/adapters/acme/support-search/files/?version=1",
    "/adapters/acme/support-search/report/?version=3", "/adapters/acme/support-search/events/",
    "/adapters/acme/support-search/move/?version=4", "/upload/?watch=acme/support-search@3",
]  # fmt: skip


def lora_folder(folder: Path, seed: int) -> Path:
    """A LoRA that the real validation accepts."""
    folder.mkdir()
    for name, data in lora_files(seed).items():
        (folder / name).write_bytes(data)
    return folder


def test_a_dropped_folder_is_previewed_sent_and_becomes_ready(person: Page, site: Site, tmp_path: Path) -> None:
    if site.celery is None:
        site.start_celery()
    folder = lora_folder(tmp_path / "Brake Search", 71)
    (folder / ".DS_Store").write_bytes(b"junk")
    files = [[f"{folder.name}/{path.name}", base64.b64encode(path.read_bytes()).decode()] for path in folder.iterdir()]
    person.goto("/upload/")
    person.evaluate(DROP_FOLDER, files)
    assert person.evaluate("window.coverShown")
    preview = person.locator("#preview")
    expect(preview).to_contain_text("sentence-transformers/all-MiniLM-L6-v2")
    expect(preview.locator(".facts")).to_contain_text(re.compile(r"Rank\s*4\s*Alpha\s*8"))
    expect(preview.locator(".facts")).to_contain_text(re.compile(r"Tensors\s*8"))
    expect(preview.locator(".left-out")).to_have_text(f"{folder.name}/.DS_Store")
    expect(person.locator("#adapter")).to_have_value("brake-search")
    expect(person.locator("#push-text")).to_contain_text("--name acme/brake-search")
    person.get_by_role("button", name="Upload", exact=True).click()
    verdict = person.locator("#verdict")
    expect(verdict).to_contain_text("acme/brake-search version 1", timeout=20_000)
    expect(verdict.locator("> .card-head")).to_contain_text("Ready", timeout=120_000)
    expect(verdict.locator("tbody tr").last).to_contain_text("Pass")
    expect(verdict.locator("#verdict-usage")).to_contain_text('"model": "acme/brake-search"')
    person.reload()
    expect(person.locator("#verdict")).to_contain_text("Ready")


def test_known_bad_files_are_named_before_sending(person: Page, tmp_path: Path) -> None:
    person.goto("/upload/")
    pickle, pointer, empty = tmp_path / "adapter_model.bin", tmp_path / "config.json", tmp_path / "adapter_config.json"
    pickle.write_bytes(b"\x80\x02}q\x00.")
    pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    empty.write_bytes(b"")
    person.set_input_files("#files", [pickle, pointer, empty])
    findings = person.locator(".finding")
    expect(findings).to_have_count(3)
    expect(person.locator("#preview")).to_contain_text("git lfs pull")
    expect(person.locator("#preview")).to_contain_text("A pickle file can run code")
    expect(person.locator("#preview")).to_contain_text("0 bytes")
    expect(person.locator("#send")).to_have_text("Upload anyway")

    whole = write_folder(tmp_path / "whole")
    cut = tmp_path / "adapter_model.safetensors"
    cut.write_bytes((whole / "adapter_model.safetensors").read_bytes()[:-1])
    person.set_input_files("#files", [cut, whole / "adapter_config.json"])
    expect(findings).to_have_count(1)
    expect(findings).to_contain_text("The file cannot be whole: the header promises")
    person.get_by_role("button", name="Clear").click()
    expect(person.locator("#preview")).to_be_hidden()


def test_a_refused_name_keeps_the_choice_and_says_why(person: Page, tmp_path: Path) -> None:
    person.goto("/upload/")
    archive = tmp_path / "adapter.zip"
    with zipfile.ZipFile(archive, "w") as target:
        target.writestr("a.txt", "not an adapter")
    person.set_input_files("#files", archive)
    expect(person.locator("#preview")).to_contain_text("An archive is opened on the server")
    person.get_by_label("Name", exact=True).fill("UPPER")
    # the browser's own check comes first; without it the server's sentence is shown
    person.locator("#upload-form").evaluate("(form) => { form.noValidate = true; }")
    with person.expect_response(lambda answer: answer.url.endswith("/api/v1/uploads/known/")) as caught:
        person.locator("#send").click()
    assert caught.value.status == 400
    expect(person.get_by_role("alert")).to_contain_text("is not allowed in a name")
    expect(person.locator("#preview")).to_be_visible()


def test_an_open_page_follows_what_others_do(person: Page, site: Site) -> None:
    person.goto("/adapters/acme/tickets-05/versions/")
    expect(person.locator("#connection")).to_contain_text("Updates live")
    expect(person.locator("#live")).not_to_contain_text("beta")
    with site.api() as api:
        assert api.put("adapters/acme/tickets-05/aliases/beta/", json={"version": 1}).status_code == 200
    expect(person.locator("#live .adapter-facts")).to_contain_text("beta → v1")
    expect(person.locator("#v1")).to_contain_text("beta")


def test_the_theme_follows_the_system_and_the_switch_and_is_kept(person: Page) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    person.goto("/adapters/")
    person.emulate_media(color_scheme="light")
    light = person.evaluate(background)
    person.emulate_media(color_scheme="dark")
    dark = person.evaluate(background)
    assert dark != light
    person.locator("[data-theme-choice=light]").first.click()
    assert person.evaluate(background) == light
    person.reload()
    assert person.evaluate(background) == light
    assert person.evaluate("localStorage.getItem('shoal-theme')") == "light"
    person.locator("[data-theme-choice=auto]").first.click()
    assert person.evaluate(background) == dark


def test_nothing_scrolls_sideways_on_a_phone(person: Page) -> None:
    person.set_viewport_size({"width": 390, "height": 844})
    for address in PHONE_PAGES:
        person.goto(address)
        assert person.evaluate("document.documentElement.scrollWidth") <= 390, address
    person.get_by_label("Menu").click()
    expect(person.locator("nav.menu-list").get_by_role("link", name="Fleet")).to_be_visible()
    person.keyboard.press("Escape")
    expect(person.locator("nav.menu-list")).to_be_hidden()


def test_everything_is_reached_by_keyboard(person: Page) -> None:
    person.goto("/adapters/")
    person.keyboard.press("Tab")
    expect(person.get_by_role("link", name="Skip to content")).to_be_focused()
    person.keyboard.press("Enter")
    expect(person.locator("#content")).to_be_focused()
    person.keyboard.press("/")
    expect(person.get_by_label("Search adapters")).to_be_focused()
    person.keyboard.type("support")
    expect(person.locator("#rows tbody tr")).to_have_count(1)
    assert "q=support" in person.url
    person.goto("/adapters/acme/support-search/versions/")
    move = person.get_by_role("link", name="Make version 1 live")
    move.focus()
    person.keyboard.press("Enter")
    dialog = person.get_by_role("dialog")
    expect(dialog).to_contain_text("Make version 1 live?")
    person.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(move).to_be_focused()


def test_snippets_switch_and_copy(person: Page) -> None:
    person.context.grant_permissions(["clipboard-read", "clipboard-write"])
    person.goto("/adapters/acme/support-search/")
    person.get_by_role("tab", name="curl").click()
    expect(person.locator("#curl-text")).to_be_visible()
    expect(person.locator("#openai-text")).to_be_hidden()
    person.get_by_role("button", name="curl").click()
    copied = person.evaluate("navigator.clipboard.readText()")
    assert '"model": "acme/support-search"' in copied
    person.reload()
    expect(person.locator("#curl-text")).to_be_visible()


def test_pages_stand_without_scripts(site: Site, browser: Browser, person: Page) -> None:
    state = person.context.storage_state()
    context = browser.new_context(base_url=site.url, java_script_enabled=False, storage_state=state)
    page = context.new_page()
    page.goto("/upload/")
    expect(page.get_by_label("Files or archive")).to_be_visible()
    expect(page.get_by_role("button", name="Choose folder")).to_be_hidden()
    page.goto("/adapters/")
    page.get_by_label("Search adapters").fill("support")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("#rows tbody tr")).to_have_count(1)
    page.goto("/adapters/acme/support-search/")
    expect(page.locator("#openai-text")).to_be_visible()
    expect(page.locator("#curl-text")).to_be_visible()
    context.close()
