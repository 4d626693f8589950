"""Requests made from the committed schema, good and bad ones: no 500, and every answer is as the schema says."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.integration.controlplane.site import ROOT, Site, running_web
from tests.servers import free_port

pytestmark = pytest.mark.timeout(300)

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = 4
SCHEMA = schemathesis.openapi.from_path(str(ROOT / "docs" / "openapi.yaml"))
OPERATIONS = [found.ok() for found in SCHEMA.get_all_operations() if isinstance(found, Ok)]
schemathesis.serializer.alias("application/offset+octet-stream", "application/octet-stream")
# machines' downloads, and the end of the very key in use, have tests of their own
LEFT_OUT = frozenset({"GET /api/v1/artifacts/{sha256}/", "DELETE /api/v1/keys/{key_id}/"})


@pytest.fixture(scope="module")
def web(site: Site) -> Iterator[Site]:
    """A web process with no help from Celery, so that nothing that is made here is worked on."""
    port = free_port()
    own = dataclasses.replace(site, web_port=port)
    with running_web(own, port):
        yield own


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_answers_are_as_the_schema_says(web: Site, operation: APIOperation[Any, Any, Any, Any]) -> None:
    if operation.label in LEFT_OUT:
        pytest.skip("has tests of its own")
    key = {"Authorization": f"Bearer {web.secrets['api_key']}"}

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def send(data: st.DataObject) -> None:
        case = data.draw(operation.as_strategy())
        answer = case.call(base_url=web.url, headers=key)
        case.validate_response(answer, checks=CHECKS, headers=key)

    send()
