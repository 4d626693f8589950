"""Who did what (``Event``), and what the data plane must still be told (``Outbox``)."""

from controlplane.events.models.events import Event
from controlplane.events.models.outbox import Outbox

__all__ = ["Event", "Outbox"]
