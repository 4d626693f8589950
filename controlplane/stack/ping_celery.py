"""``python -m controlplane.stack.ping_celery NODE`` ends with 0 once the Celery worker ``NODE`` answers."""

from __future__ import annotations

import sys
import time

from controlplane.celery import app

_TRIES = 40


def main() -> None:
    node = sys.argv[1]
    for _ in range(_TRIES):
        try:
            if app.control.ping(destination=[node], timeout=1.0):
                return
        except (OSError, app.connection_for_read().connection_errors) as error:
            print(f"broker: {error}", flush=True)
            time.sleep(0.5)
    sys.exit(f"Celery worker {node} does not answer")


if __name__ == "__main__":
    main()
