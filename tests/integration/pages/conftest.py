"""A seeded site of real processes, a signed-in HTTP client without scripts, and a real browser."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from playwright.sync_api import Browser, Page, StorageState, ViewportSize, expect

from tests.browser import open_browser
from tests.integration.controlplane.site import ROOT, Site, running_site
from tests.integration.pages.seed import PASSWORD

expect.set_options(timeout=15_000)


@dataclass
class PlainBrowser:
    """A person without scripts: follows links, fills forms, keeps cookies."""

    http: httpx.Client

    def get(self, address: str) -> str:
        answer = self.http.get(address)
        assert answer.status_code == 200, (address, answer.status_code)
        return answer.text

    def post(self, address: str, data: dict[str, str], **more: object) -> httpx.Response:
        """Send a form as the page at ``address`` would, with its token, and follow the answer."""
        token = re.search(r'name="csrf-token" content="([^"]+)"', self.get("/adapters/"))
        assert token is not None
        return self.http.post(address, data={"csrfmiddlewaretoken": token[1], **data}, **more)  # type: ignore[arg-type]

    def sign_in(self, username: str) -> PlainBrowser:
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', self.http.get("/login/").text)
        assert token is not None
        form = {"csrfmiddlewaretoken": token[1], "username": username, "password": PASSWORD}
        assert self.http.post("/login/", data=form).url.path == "/adapters/"
        return self


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Web and Celery with adapters in every state; ``mara`` owns the team ``acme``."""
    home = tmp_path_factory.mktemp("pages")
    with running_site(home) as running:
        command = [sys.executable, "-m", "tests.integration.pages.seed", str(home / "work")]
        done = subprocess.run(command, cwd=ROOT, env=running.environment, capture_output=True, check=False, timeout=110)
        assert done.returncode == 0, done.stderr.decode()
        running.secrets |= json.loads(done.stdout)
        yield running


@pytest.fixture(scope="session")
def cookies(site: Site) -> dict[str, httpx.Cookies]:
    """Sessions of ``mara`` and ``viewer``: one sign-in each, since hashing a password takes its time."""
    found = {}
    for username in ("mara", "viewer"):
        with plain_client(site) as http:
            PlainBrowser(http).sign_in(username)
            found[username] = httpx.Cookies(http.cookies)
    return found


@pytest.fixture
def plain(site: Site, cookies: dict[str, httpx.Cookies]) -> Iterator[PlainBrowser]:
    """``mara``, signed in, without scripts."""
    with plain_client(site, cookies["mara"]) as http:
        yield PlainBrowser(http)


@pytest.fixture
def viewer(site: Site, cookies: dict[str, httpx.Cookies]) -> Iterator[PlainBrowser]:
    """A viewer of the team ``acme``, without scripts."""
    with plain_client(site, cookies["viewer"]) as http:
        yield PlainBrowser(http)


def plain_client(site: Site, cookies: httpx.Cookies | None = None) -> httpx.Client:
    """A client that follows redirects, as a browser does."""
    headers = {"Referer": site.url}
    return httpx.Client(base_url=site.url, follow_redirects=True, timeout=30, headers=headers, cookies=cookies)


@pytest.fixture
def browser() -> Iterator[Browser]:
    """Chromium of the machine."""
    with open_browser() as launched:
        yield launched


@pytest.fixture(scope="session")
def signed_in(site: Site) -> StorageState:
    """``mara``'s session, begun in the browser."""
    with open_browser() as browser:
        page = browser.new_context(base_url=site.url).new_page()
        page.goto("/login/")
        page.get_by_label("Username").fill("mara")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url("**/adapters/")
        return page.context.storage_state()


@pytest.fixture
def person(site: Site, browser: Browser, signed_in: StorageState) -> Iterator[Page]:
    """``mara`` in a browser; an error on a page's console fails the test, but for a refusal or a lost line that was
    asked for."""
    size: ViewportSize = {"width": 1280, "height": 800}
    context = browser.new_context(base_url=site.url, viewport=size, storage_state=signed_in)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    yield page
    context.close()
    asked_for = ("status of 400", "net::ERR_CONNECTION_RESET")
    assert [line for line in problems if not any(words in line for words in asked_for)] == []
