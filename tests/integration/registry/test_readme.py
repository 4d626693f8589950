"""The README of an upload is shown as text: what its author wrote reaches the page, and no markup of theirs does."""

from __future__ import annotations

import hashlib
from itertools import islice

import pytest
from django.test import Client

from loras.readme import Block, Span, read_blocks, readme_of
from loras.services import receive_upload
from loras.uploads.receive import ReceivedFile
from tests.integration.registry.shop import Shop

TEXT = """---
license: mit
---
# Brakes ##

<!-- written by a machine -->
Tuned on **40,000** pairs
of `query: ` texts. <script>alert(1)</script>

- see [the card](javascript:alert "title")
- odd ` tick

| a | b |
|---|---|

```python
x = "<b>"
```
"""


def read(text: str) -> list[Block]:
    return list(read_blocks(text))


def test_blocks_of_a_model_card() -> None:
    assert read(TEXT.replace("\n", "\r\n")) == [
        Block("heading", [[Span("Brakes")]]),
        Block(
            "paragraph",
            [
                [
                    Span("Tuned on 40,000 pairs of "),
                    Span("query: ", code=True),
                    Span(" texts. <script>alert(1)</script>"),
                ]
            ],
        ),
        Block("items", [[Span("see the card javascript:alert")], [Span("odd ` tick")]]),
        Block("code", [[Span("| a | b |\n|---|---|")]]),
        Block("code", [[Span('x = "<b>"')]]),
    ]
    assert read("---\nonly: data\n---\n\n<!-- nothing") == []


@pytest.mark.parametrize(
    "line", ["**a ", "__a**", "[a](", "![", "`", "# a" + " " * 60_000, "- ", "<!--", "***a ", "[](a ("]
)
def test_hostile_lines_cost_their_length(line: str) -> None:
    text = (line * (60_000 // len(line) + 1))[:64_000] + "x"
    assert len(list(islice(read_blocks(text), 300))) <= 300


def test_the_overview_escapes_it_and_shows_it_of_the_version_in_use(shop: Shop, client: Client) -> None:
    location = shop.work / "incoming-readme"
    location.write_text(TEXT)
    sha256 = hashlib.sha256(location.read_bytes()).hexdigest()
    files = [ReceivedFile("README.md", sha256, location.stat().st_size, location)]
    version = receive_upload(team=shop.team, name="search", files=files, actor=shop.owner).version
    client.force_login(shop.owner)
    page = client.get("/adapters/acme/search/").content.decode()
    assert "Tuned on 40,000 pairs" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "alert(1)</script>" not in page
    assert 'href="javascript' not in page
    assert "<code>query: </code>" in page
    shop.decide(version, shop.accepted())
    shop.ready()
    assert readme_of(shop.adapter(), 2) is None
    assert readme_of(shop.adapter(), 1) is not None
