"""Task heads that adapters bring along; they come and go with the adapter's slot."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from wire.canonical import HeadHeader


@dataclass(frozen=True, slots=True)
class TaskHead:
    """A task head ready to run: ``module`` is a transformers class whose body is left out, in float32."""

    header: HeadHeader
    module: nn.Module
    size_bytes: int

    def to(self, device: torch.device) -> TaskHead:
        """The head on ``device``."""
        return TaskHead(self.header, self.module.to(device), self.size_bytes)
