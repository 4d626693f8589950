"""``python -m controlplane.stack.register_models``: base models that come as packages. Seconds on the first start."""

from __future__ import annotations

import sys

import django

from wire.errors import ShoalError


def main() -> int:
    """0 once every packaged base model that is installed is registered."""
    django.setup()

    from controlplane.bootstrap import bootstrap_models

    try:
        bootstrap_models()
    except ShoalError as error:
        print(f"{error.info.message} {error.info.hint or ''}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
