"""``python -m controlplane.stack``: the embedded stack in one terminal, the same as ``manage.py up``."""

from __future__ import annotations

import sys

from controlplane.stack.up import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
