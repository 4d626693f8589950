"""A model's folder: its configuration, tokenizer and weights, in transformers' own files or in one GGUF file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import nn

from wire.errors import Code, ShoalError


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A directory with ``config.json``, or with a GGUF file (named by ``gguf``) that holds everything."""

    path: Path
    gguf: str | None = None
    _config: list[Any] = field(default_factory=list, repr=False, compare=False)

    @property
    def _arguments(self) -> dict[str, Any]:
        found: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        return found if self.gguf is None else found | {"gguf_file": self.gguf}

    def config(self) -> Any:
        """Transformers' configuration, read once. Raises ``ShoalError(MODEL_UNLOADABLE)``."""
        from transformers import AutoConfig

        if self._config:  # a GGUF file's takes seconds to read
            return self._config[0]
        try:
            self._config.append(AutoConfig.from_pretrained(str(self.path), **self._arguments))
            return self._config[0]
        except (OSError, ValueError, KeyError, ImportError) as error:
            raise _unloadable(f"The configuration in {self.path} cannot be read: {error}") from error

    def network(self, kind: Any, config: Any) -> nn.Module:
        """The weights as an instance of the transformers class ``kind``, in float32 and ready for inference.

        Other dtypes are made from it: loading in one would change torch's default dtype under the device's thread.
        Raises ``ShoalError(MODEL_UNLOADABLE)``.
        """
        from transformers.utils import logging as transformers_logging

        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        try:
            module: nn.Module = kind.from_pretrained(
                str(self.path), config=config, dtype=torch.float32, **self._arguments
            )
        except (OSError, ValueError, RuntimeError, KeyError, ImportError) as error:
            raise _unloadable(f"The weights in {self.path} cannot be loaded: {error}") from error
        return module.requires_grad_(False).eval()

    def pretrained_tokenizer(self) -> Any:
        """Transformers' tokenizer, with its chat template. Raises ``ShoalError(MODEL_UNLOADABLE)``."""
        from transformers import AutoTokenizer

        try:
            return AutoTokenizer.from_pretrained(str(self.path), use_fast=True, **self._arguments)
        except Exception as error:  # the Rust side raises bare Exception
            raise _unloadable(f"The tokenizer in {self.path} cannot be read: {error}") from error

    def tokenizer(self) -> Tokenizer:
        """The fast tokenizer alone. Raises ``ShoalError(MODEL_UNLOADABLE)``."""
        if not (self.path / "tokenizer.json").exists():
            found = getattr(self.pretrained_tokenizer(), "backend_tokenizer", None)
            if not isinstance(found, Tokenizer):
                raise _unloadable(f"{self.path} has no tokenizer.json, and none can be made from its other files")
            return found
        try:
            return Tokenizer.from_file(str(self.path / "tokenizer.json"))
        except Exception as error:  # the Rust side raises bare Exception
            raise _unloadable(f"The tokenizer in {self.path} cannot be read: {error}") from error


def open_folder(path: Path) -> ModelFolder:
    """The folder at ``path``. Raises ``ShoalError(MODEL_UNLOADABLE)`` when it holds several GGUF files and no
    ``config.json``."""
    if (path / "config.json").exists():
        return ModelFolder(path)
    files = sorted(file.name for file in path.glob("*.gguf"))
    if files:
        from workers.models.gguf_files import read_gguf_quickly

        read_gguf_quickly()
    if len(files) > 1:
        raise _unloadable(f"{path} has {len(files)} GGUF files ({', '.join(files[:3])}); one was expected")
    return ModelFolder(path, files[0] if files else None)


def _unloadable(message: str) -> ShoalError:
    return ShoalError(Code.MODEL_UNLOADABLE, f"{message}.", hint="Check the model's folder.")
