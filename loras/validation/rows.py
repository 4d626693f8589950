"""The rows of a validation as they come; they are kept when a later step refuses."""

from __future__ import annotations

from dataclasses import dataclass, field

from loras.validation.findings import Check, Found, judge
from wire.reports import Row


@dataclass(slots=True)
class KeptRows:
    """Rows so far."""

    rows: list[Row] = field(default_factory=list)

    def judge(self, found: Found, *checks: Check[Found]) -> Found:
        """``found`` again, once all ``checks`` said what they have to say of it. Raises ``Refused``."""
        self.rows.extend(judge(found, checks))
        return found
