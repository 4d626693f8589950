"""``python -m loras.validation``: one ValidationRequest as JSON on stdin, one SandboxReply as JSON on stdout."""

from __future__ import annotations

import argparse
import sys

from confinement.limits import add_limits, limits_of
from loras.validation.pipeline import examine
from wire.codec import decode_json, encode_json
from wire.validation import ValidationRequest


def main() -> None:
    """Examine one upload; a traceback on stderr and a non-zero exit mean that there is no verdict."""
    parser = argparse.ArgumentParser(prog="python -m loras.validation")
    add_limits(parser)
    limits_of(parser.parse_args()).apply()
    request = decode_json(sys.stdin.buffer.read(), ValidationRequest)
    sys.stdout.buffer.write(encode_json(examine(request)))


if __name__ == "__main__":
    main()
