"""GGUF files in a fifth of the time that transformers takes for them."""

from __future__ import annotations

import functools
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray


class PlainReader(gguf.GGUFReader):
    """The library's reader over a plain view of the mapped file: a tokenizer is some 250,000 slices of it, and a slice
    of ``numpy.memmap`` costs four times that of an array."""

    @property
    def data(self) -> Any:
        return self._plain

    @data.setter
    def data(self, mapped: NDArray[np.uint8]) -> None:
        self._plain = mapped.view(np.ndarray)


@functools.cache
def read_gguf_quickly() -> None:
    """Once a process: let transformers, which looks both names up at each load, use :class:`PlainReader`, and make the
    table of tensor names once rather than for every module.

    SmolLM2 on a quiet core: its header takes 0.7 s of processor time in place of 2.7 s, three times in a load.
    """
    vars(gguf)["GGUFReader"] = PlainReader
    vars(gguf)["get_tensor_name_map"] = functools.cache(gguf.get_tensor_name_map)
