"""Where the command ends: errors become one line and an exit code, never a traceback."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from client.errors import ClientError, Unreachable
from wire.errors import ShoalError

EXIT_REFUSED, EXIT_REJECTED, EXIT_UNREACHABLE, EXIT_ASKED = 1, 2, 3, 4

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Turns the client's errors into one line on standard error and an exit code."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except Unreachable as error:
            stop(str(error), EXIT_UNREACHABLE)
        except OSError as error:
            # TimeoutError is one without a file
            place = f"{error.filename}: " if error.filename else ""
            stop(f"{place}{error.strerror or error}", EXIT_REFUSED)
        except (ClientError, ShoalError) as error:
            stop(str(error), EXIT_REFUSED)

    return run


def stop(message: str, code: int) -> None:
    """One line on standard error, then the end."""
    click.echo(f"shoal: {message}", err=True)
    sys.exit(code)
