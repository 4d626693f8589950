"""``python -m workers.blueprint FOLDER``: what a fine-tune's configuration implies, as JSON on stdout.

The class that its configuration names is built on torch's meta device, so that shapes cost no memory. Nothing of the
folder is run, and of its weights only the digest is read. Exit code 2 with an error as JSON on stderr where the class
cannot be built.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from wire.codec import encode_json
from wire.errors import Code, ErrorInfo, ShoalError
from wire.manifest import Blueprint, HeadTensor
from workers.manifest import make_manifest

# parts of the plain models that no task here reads, so that files without them are whole
_UNREAD = re.compile(r"(^|\.)pooler\.")


def make_blueprint(folder: Path) -> Blueprint:
    """The blueprint of the model in ``folder``. Raises ``ShoalError(MODEL_UNLOADABLE)``."""
    manifest = make_manifest("fine-tune", f"path:{folder}")
    model = _build(folder)
    state = model.state_dict()
    prefix = str(getattr(model, "base_model_prefix", "") or "")
    headed = type(model).__name__.endswith("ForSequenceClassification")
    ignored = [re.compile(pattern) for pattern in getattr(model, "_keys_to_ignore_on_load_missing", None) or []]
    optional = {name for name in state if any(pattern.search(name) for pattern in ignored)}
    optional |= {name for name in state if not headed and _UNREAD.search(name)}
    return Blueprint(
        manifest=manifest,
        tensors=[HeadTensor(name, list(tensor.shape)) for name, tensor in state.items()],
        optional=sorted(optional),
        tied=_tied(model),
        prefix=prefix,
    )


def _build(folder: Path) -> Any:
    import torch
    from transformers import (
        AutoConfig,
        AutoModel,
        AutoModelForCausalLM,
        AutoModelForSequenceClassification,
        AutoModelForTokenClassification,
        T5EncoderModel,
    )

    config = AutoConfig.from_pretrained(str(folder), local_files_only=True)
    named = (config.architectures or [""])[0]
    kinds = {
        "ForSequenceClassification": AutoModelForSequenceClassification,
        "ForTokenClassification": AutoModelForTokenClassification,
        "ForCausalLM": AutoModelForCausalLM,
        "LMHeadModel": AutoModelForCausalLM,
    }
    kind: Any = next((kind for ending, kind in kinds.items() if named.endswith(ending)), AutoModel)
    with torch.device("meta"):
        if config.model_type == "t5":
            return T5EncoderModel(config)
        return kind.from_config(config)


def _tied(model: Any) -> list[list[str]]:
    """Names that share their numbers."""
    groups: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    tied = [names for names in groups.values() if len(names) > 1]
    if getattr(model.config, "tie_word_embeddings", False):
        # building without numbers does not tie the parameters themselves
        keys = getattr(model, "_tied_weights_keys", None) or {}
        tied += [[name, source] for name, source in keys.items()] if isinstance(keys, dict) else []
    return tied


def main(arguments: list[str] | None = None) -> int:
    """Print the blueprint, or one error as JSON on stderr with exit code 2."""
    (folder,) = arguments if arguments is not None else sys.argv[1:]
    try:
        blueprint = make_blueprint(Path(folder))
    except ShoalError as error:
        info = error.info
    except Exception as error:  # whatever the libraries raise for a configuration says something about it
        info = ErrorInfo(code=Code.MODEL_UNLOADABLE, message=f"{type(error).__name__}: {str(error)[:300]}")
    else:
        sys.stdout.buffer.write(encode_json(blueprint) + b"\n")
        return 0
    sys.stderr.buffer.write(encode_json(info) + b"\n")
    return 2


if __name__ == "__main__":
    raise SystemExit(main())
