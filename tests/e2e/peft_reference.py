"""What PEFT itself answers for an adapter: the reference every served answer is held to."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from peft import PeftModel
from torch.nn import functional
from transformers import AutoModel, AutoTokenizer

from workers.sources import resolve_source

Vectors = NDArray[np.float32]


def reference_vectors(source: str, adapter: Path | None, texts: list[str]) -> Vectors:
    """Unit vectors of ``texts`` by transformers and PEFT, one text at a time: mean pooling, float32."""
    folder = str(resolve_source(source))
    model = AutoModel.from_pretrained(folder).eval()
    with warnings.catch_warnings():
        # PEFT 0.21 reads a property that transformers 5 calls deprecated
        warnings.simplefilter("ignore", FutureWarning)
        tuned = model if adapter is None else PeftModel.from_pretrained(model, str(adapter)).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = []
    with torch.inference_mode():
        for text in texts:
            hidden = tuned(**tokenizer([text], return_tensors="pt")).last_hidden_state
            rows.append(functional.normalize(hidden.mean(dim=1), dim=1)[0])
    vectors: Vectors = torch.stack(rows).numpy()
    return vectors
