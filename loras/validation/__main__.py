"""``python -m loras.validation``: one ValidationRequest as JSON on stdin, one SandboxReply as JSON on stdout."""

from __future__ import annotations

import argparse
import sys

from loras.validation.limits import limit_this_process
from loras.validation.pipeline import examine
from wire.codec import decode_json, encode_json
from wire.validation import ValidationRequest


def main() -> None:
    """Examine one upload; a traceback on stderr and a non-zero exit mean that there is no verdict."""
    parser = argparse.ArgumentParser(prog="python -m loras.validation")
    for name in ("--memory-bytes", "--cpu-s", "--file-bytes", "--open-files"):
        parser.add_argument(name, type=int, required=True)
    options = parser.parse_args()
    limit_this_process(
        memory_bytes=options.memory_bytes,
        cpu_s=options.cpu_s,
        file_bytes=options.file_bytes,
        open_files=options.open_files,
    )
    request = decode_json(sys.stdin.buffer.read(), ValidationRequest)
    sys.stdout.buffer.write(encode_json(examine(request)))


if __name__ == "__main__":
    main()
