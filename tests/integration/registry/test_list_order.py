"""The list is sorted by the server, by what the address says."""

from __future__ import annotations

import re

from django.test import Client

from tests.integration.registry.shop import Shop


def names(client: Client, **given: str) -> list[str]:
    page = client.get("/adapters/", given).content.decode()
    return re.findall(r'class="row-link" href="/adapters/acme/([^/]+)/"', page)


def test_columns_sort_both_ways_and_keep_filters(shop: Shop, client: Client) -> None:
    for name in ("bees", "ants", "cats"):
        shop.ready(name)
    shop.ready("ants")
    client.force_login(shop.owner)
    assert names(client) == ["ants", "cats", "bees"]
    assert names(client, sort="name") == ["ants", "bees", "cats"]
    assert names(client, sort="-name") == ["cats", "bees", "ants"]
    assert names(client, sort="-versions")[0] == "ants"
    assert names(client, sort="versions")[-1] == "ants"
    for column in ("state", "-state", "base", "size", "-size", "changed"):
        assert len(names(client, sort=column)) == 3
    assert names(client, sort="name;drop") == names(client)
    sheet = client.get("/adapters.csv", {"q": "s", "sort": "name"})
    assert sheet["content-type"].startswith("text/csv")
    lines = sheet.content.decode().splitlines()
    assert lines[0] == "adapter,state,live,base_model,versions,size_bytes,changed"
    assert [line.split(",")[0] for line in lines[1:]] == ["acme/ants", "acme/bees", "acme/cats"]
    page = client.get("/adapters/", {"q": "s", "sort": "name", "page": "1"}).content.decode()
    assert 'aria-sort="ascending"><a class="sort" href="?q=s&amp;sort=-name">' in page
    assert '<input type="hidden" name="sort" value="name">' in page
