"""What is judged of a multipart upload when its fields have come and its files have not."""

from __future__ import annotations

from collections.abc import Mapping

from django.db import close_old_connections

from controlplane.accounts.principal import Principal
from controlplane.body_limit import ENVELOPE_BYTES
from loras.services.uploads import check_name
from loras.uploads.handlers import Gate
from loras.uploads.quotas import check_bytes, check_counts
from wire.names import parse_full_name
from wire.registry import Scope


def quota_gate(principal: Principal, name: str, content_length: int | None) -> Gate:
    """Refuses, before the first file is written, what the name or a quota forbids. ``name`` is ``team/adapter``, or
    empty where the field ``name`` says it."""

    def judge(fields: Mapping[str, str]) -> None:
        said = name or fields.get("name", "")
        if not said:
            # the field may follow the files; then it is judged after them
            return
        full_name = parse_full_name(said)
        team = principal.team(full_name.team, Scope.PUSH)
        check_name(team, full_name.adapter)
        check_counts(team, full_name.adapter)
        # what frames the files is not theirs; the exact number is judged when they are there
        check_bytes(team, max(0, (content_length or 0) - ENVELOPE_BYTES))
        # a slow upload must not keep its database connection for minutes
        close_old_connections()

    return judge
