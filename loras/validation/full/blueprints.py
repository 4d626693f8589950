"""What a fine-tune's configuration implies, asked from the worker package in a process of its own.

That process inherits the limits of this one and dies with it; it builds the model without memory for its numbers.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from loras.validation.findings import Refused, clipped, failed
from wire.codec import WireDecodeError, decode_json
from wire.errors import ErrorInfo
from wire.manifest import Blueprint
from wire.reports import Finding

CHECK = "Architecture"
_TIMEOUT_S = 120
_REFUSED_EXIT = 2


def ask_blueprint(model_dir: Path) -> Blueprint:
    """The blueprint of the model in ``model_dir``. Raises ``Refused`` where it cannot be built."""
    command = [sys.executable, "-m", "workers.blueprint", str(model_dir)]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise unbuildable(f"building it takes more than {_TIMEOUT_S} s.") from error
    if done.returncode == 0:
        return decode_json(done.stdout, Blueprint)
    reason = f"the process that built it ended with {done.returncode}."
    if done.returncode == _REFUSED_EXIT:
        try:
            reason = decode_json(done.stderr.strip().rsplit(b"\n", 1)[-1], ErrorInfo).message
        except WireDecodeError:
            reason = "it was refused without a reason."
    raise unbuildable(reason.replace(f"{model_dir}/", "").replace(str(model_dir), "the upload"))


def unbuildable(reason: str) -> Refused:
    """The refusal of a model whose class cannot be built."""
    what = f"The model that config.json describes cannot be built: {clipped(reason, limit=400)}"
    todo = "Load the folder with transformers' from_pretrained; upload what save_pretrained writes then."
    return Refused(failed(CHECK, Finding.ARCHITECTURE_UNSUPPORTED, what, todo))
