"""Lists, details and forms work without JavaScript, and only for those who may."""

from __future__ import annotations

import re

import httpx
import pytest

from tests.integration.controlplane.adapters import lora_files, multipart
from tests.integration.controlplane.site import Site
from tests.integration.pages.conftest import PlainBrowser, plain_client

pytestmark = pytest.mark.timeout(180)

PAGES = [
    "/adapters/", "/upload/", "/keys/", "/password/", "/adapters/acme/support-search/",
    "/adapters/acme/support-search/versions/", "/adapters/acme/support-search/files/",
    "/adapters/acme/support-search/report/", "/adapters/acme/support-search/events/",
    "/adapters/acme/support-search/move/?version=4", "/adapters/acme/still-validating/",
    "/adapters/acme/which-base/", "/adapters/acme/wrong-size/report/?version=1",
]  # fmt: skip


@pytest.mark.parametrize("address", PAGES)
def test_a_stranger_is_sent_to_sign_in(site: Site, address: str) -> None:
    answer = httpx.get(site.url + address)
    assert answer.status_code == 302
    assert answer.headers["location"].startswith("/login/?next=")


@pytest.mark.parametrize("address", PAGES)
def test_every_page_is_whole(plain: PlainBrowser, address: str) -> None:
    text = plain.get(address)
    assert text.count("<h1") == 1
    assert '<main class="page' in text
    assert "Skip to content" in text
    assert not re.search(r"\son[a-z]+=", text), "an inline handler would be blocked by a content security policy"


@pytest.mark.parametrize(
    "address",
    [
        "/adapters/rivals/secret/", "/adapters/rivals/secret/versions/", "/adapters/rivals/secret/move/?version=1",
        "/adapters/rivals/secret/versions/1/verdict/", "/adapters/rivals/nothing/", "/adapters/acme/nothing/",
        "/adapters/acme/support-search/report/?version=99", "/adapters/acme/support-search/report/?version=x",
        "/upload/?watch=rivals/secret@1", "/keys/99999/revoke/",
    ],
)  # fmt: skip
def test_what_is_not_theirs_does_not_exist(plain: PlainBrowser, address: str) -> None:
    answer = plain.http.get(address)
    assert answer.status_code == 404
    assert "There is nothing here" in answer.text
    assert answer.headers["x-request-id"] in answer.text


def test_list_searches_filters_and_pages(plain: PlainBrowser) -> None:
    first = plain.get("/adapters/")
    assert "1–25 of" in first
    assert "support-search" in first
    second = plain.get("/adapters/?page=2")
    assert "tickets-00" in second
    assert "support-search" not in second
    found = plain.get("/adapters/?q=tickets-1&state=ready")
    assert "tickets-10" in found
    assert "tickets-20" not in found
    assert "wrong-size" in plain.get("/adapters/?state=rejected")
    nothing = plain.get("/adapters/?q=zebra")
    assert "No adapter matches" in nothing
    assert "Clear search and filters" in nothing


def test_upload_by_the_plain_form_gets_a_verdict_page(plain: PlainBrowser) -> None:
    files = multipart(lora_files(41))
    answer = plain.post("/upload/", {"team": "acme", "adapter": "plain-form", "message": "by form"}, files=files)
    assert answer.url.path == "/upload/"
    assert answer.url.params["watch"] == "acme/plain-form@1"
    assert "Validating" in answer.text
    again = plain.post("/upload/", {"team": "acme", "adapter": "plain-form"}, files=files)
    assert "These bytes are acme/plain-form@1 already" in again.text


def test_upload_refusals_are_said_on_the_page(plain: PlainBrowser) -> None:
    files = multipart(lora_files(42))
    assert "is not allowed in a name" in plain.post("/upload/", {"team": "acme", "adapter": "No Way"}, files=files).text
    assert "holds no file" in plain.post("/upload/", {"team": "acme", "adapter": "empty"}).text
    assert plain.post("/upload/", {"team": "rivals", "adapter": "mine"}, files=files).status_code == 404


def test_alias_moves_after_a_preview_and_only_from_what_was_seen(plain: PlainBrowser) -> None:
    address = "/adapters/acme/support-search/move/?version=1"
    preview = plain.get(address)
    assert "Now: version 2" in preview
    form = {"alias": "live", "version": "1", "expect": '{"2": 100}'}
    assert "answers with version 1" in plain.post(address, form).text
    stale = plain.post(address, form)
    assert "points at @1, not at @2" in stale.text
    back = plain.post("/adapters/acme/support-search/rollback/", {})
    assert "answers with v2 again" in back.text


def test_a_question_is_answered_and_the_version_validated_again(plain: PlainBrowser) -> None:
    assert "Which one was it trained on?" in plain.get("/adapters/acme/which-base/")
    form = {"field": "base_model", "value": "nobody/knows"}
    refused = plain.post("/adapters/acme/which-base/versions/1/answer/", form)
    assert "does not fit" in refused.text
    form["value"] = "sentence-transformers/all-MiniLM-L6-v2"
    accepted = plain.post("/adapters/acme/which-base/versions/1/answer/", form)
    assert "is validated again" in accepted.text


def test_a_viewer_sees_and_may_not_change(viewer: PlainBrowser) -> None:
    assert "Make live" not in viewer.get("/adapters/acme/support-search/versions/")
    assert "You cannot upload here" in viewer.get("/upload/")
    form = {"alias": "live", "version": "1", "expect": '{"2": 100}'}
    assert viewer.post("/adapters/acme/support-search/move/?version=1", form).status_code == 403
    refused = viewer.post("/upload/", {"team": "acme", "adapter": "x"}, files=multipart(lora_files(43)))
    assert refused.status_code == 403
    assert "You may not do this" in refused.text


def test_a_key_is_shown_once_and_dies_when_revoked(plain: PlainBrowser, site: Site) -> None:
    form = {"name": "once", "team": "acme", "scopes": "read", "lifetime_d": "30"}
    answer = plain.post("/keys/", form)
    found = re.search(r"<pre id=\"secret\"[^>]*>(shoal_[\w-]+)</pre>", answer.text)
    assert found is not None
    secret = found[1]
    assert "no-store" in answer.headers["cache-control"]
    assert secret not in plain.get("/keys/")
    with site.api(secret) as api:
        assert api.get("adapters/").status_code == 200
        number = re.search(r'href="/keys/(\d+)/revoke/"[^>]*aria-label="Revoke once"', plain.get("/keys/"))
        assert number is not None
        assert "Revoke “once”?" in plain.get(f"/keys/{number[1]}/revoke/")
        assert "is revoked" in plain.post(f"/keys/{number[1]}/revoke/", {}).text
        assert api.get("adapters/").status_code == 401


def test_a_key_cannot_hold_what_its_maker_does_not(viewer: PlainBrowser) -> None:
    answer = viewer.post("/keys/", {"name": "more", "team": "acme", "scopes": "push", "lifetime_d": ""})
    assert "push is not one of the available choices" in answer.text
    assert "Shown only now" not in answer.text


def test_signing_out_needs_a_post(site: Site) -> None:
    plain = PlainBrowser(plain_client(site)).sign_in("mara")
    assert plain.http.get("/logout/").status_code == 405
    assert "/adapters/" in plain.get("/adapters/")
    assert plain.post("/logout/", {}).url.path == "/login/"
    assert plain.http.get("/adapters/", follow_redirects=False).status_code == 302
    plain.http.close()


def test_a_note_informs_and_does_not_alarm(plain: PlainBrowser) -> None:
    report = plain.get("/adapters/acme/support-search/report/")
    (note,) = set(re.findall(r'<span class="badge [^>]*>.{0,200}?>Note</span>', report))
    assert "badge-info" in note
    assert "#info" in note


def test_the_admin_names_its_lists(plain: PlainBrowser) -> None:
    index = plain.get("/admin/")
    assert re.search(r"Aliases\b", index)
    assert "Aliass" not in index
    assert "Outboxs" not in index
