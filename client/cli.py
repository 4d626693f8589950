"""The ``shoal`` command. Exit codes: 0 ready or done, 1 refused, 2 rejected or wrong usage, 3 unreachable."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from client import render
from client.api import Shoal
from client.config import DEFAULT_URL, Connection, save_login
from client.errors import ClientError, Unreachable
from client.models import VersionInfo
from client.similarity import compare
from wire.errors import ShoalError
from wire.names import LIVE, parse_full_name

EXIT_REFUSED, EXIT_REJECTED, EXIT_UNREACHABLE = 1, 2, 3


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Turns the client's errors into one line on standard error and an exit code."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except Unreachable as error:
            _stop(str(error), EXIT_UNREACHABLE)
        except (ClientError, ShoalError, TimeoutError) as error:
            _stop(str(error), EXIT_REFUSED)

    return run


def _stop(message: str, code: int) -> None:
    click.echo(f"shoal: {message}", err=True)
    sys.exit(code)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--url", help="Address of Shoal (SHOAL_URL).")
@click.option("--api-key", help="API key (SHOAL_API_KEY).")
@click.version_option(package_name="shoal")
@click.pass_context
def main(context: click.Context, url: str | None, api_key: str | None) -> None:
    """Ship LoRA adapters to a fleet of small models."""
    context.obj = lambda: Shoal(url, api_key)


@main.command()
@click.option("--url", prompt="Address of Shoal", default=DEFAULT_URL)
@click.option("--api-key", prompt="API key", hide_input=True)
@guarded
def login(url: str, api_key: str) -> None:
    """Remember an address and a key."""
    with Shoal(connection=Connection(url.rstrip("/"), api_key)) as shoal:
        me = shoal.me()
    path = save_login(url, api_key)
    click.echo(f"Signed in to {url} for team {me.team} ({', '.join(me.scopes)}). Saved in {path}.")


@main.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--name", required=True, help="team/adapter")
@click.option("--base-model", help="Base model, where the upload does not say.")
@click.option("--promote", is_flag=True, help="Make it live once it is ready.")
@click.option("--message", "-m", default="", help="What changed.")
@click.option("--wait/--no-wait", default=True, help="Wait for the verdict (default).")
@click.option("--timeout", "timeout_s", default=180.0, show_default=True, help="Seconds to wait for the verdict.")
@json_option
@click.pass_obj
@guarded
def push(
    connect: Callable[[], Shoal],
    path: Path,
    name: str,
    base_model: str | None,
    promote: bool,
    message: str,
    wait: bool,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Upload a LoRA folder, archive or file as the next version of an adapter."""
    with connect() as shoal:
        with render.upload_progress(quiet=as_json) as progress:
            version = shoal.push(
                path, name=name, base_model=base_model, promote=promote, message=message, progress=progress
            )
        if wait:
            version = shoal.wait(version, timeout_s=timeout_s)
    if as_json:
        render.print_json(version)
    else:
        render.print_version(version)
    sys.exit(_push_exit(version, wait=wait))


def _push_exit(version: VersionInfo, *, wait: bool) -> int:
    if version.state == "ready" or (not wait and not version.settled):
        return 0
    return EXIT_REJECTED


@main.command()
@click.argument("name")
@json_option
@click.pass_obj
@guarded
def versions(connect: Callable[[], Shoal], name: str, as_json: bool) -> None:
    """List the versions of an adapter."""
    with connect() as shoal:
        rows = shoal.versions(str(parse_full_name(name)))
    if as_json:
        render.print_json(rows)
    else:
        render.print_versions(rows)


@main.command()
@click.argument("version")
@click.option("--alias", default=LIVE, show_default=True)
@click.option("--confirm", is_flag=True, help="Also when the adapter has no effect.")
@json_option
@click.pass_obj
@guarded
def promote(connect: Callable[[], Shoal], version: str, alias: str, confirm: bool, as_json: bool) -> None:
    """Point an alias at a version: shoal promote team/adapter@3."""
    name, _, number = version.partition("@")
    if not number.isdigit():
        raise click.UsageError(f"{version!r} names no version; write team/adapter@3.")
    with connect() as shoal:
        adapter = shoal.promote(str(parse_full_name(name)), int(number), alias=alias, confirm=confirm)
    _print_alias(adapter.name, adapter.aliases, alias, as_json, adapter)


@main.command()
@click.argument("name")
@json_option
@click.pass_obj
@guarded
def rollback(connect: Callable[[], Shoal], name: str, as_json: bool) -> None:
    """Go back to the last version that served."""
    with connect() as shoal:
        adapter = shoal.rollback(str(parse_full_name(name)))
    _print_alias(adapter.name, adapter.aliases, LIVE, as_json, adapter)


def _print_alias(name: str, aliases: dict[str, dict[str, int]], alias: str, as_json: bool, adapter: Any) -> None:
    if as_json:
        render.print_json(adapter)
    else:
        click.echo(f"{name}:{alias} → {render.split_words(aliases.get(alias, {}))}")


@main.command("try")
@click.argument("model")
@click.argument("texts", nargs=-1, required=True)
@click.option("--base", help="Base model to compare with (default: the adapter's own).")
@json_option
@click.pass_obj
@guarded
def try_(connect: Callable[[], Shoal], model: str, texts: tuple[str, ...], base: str | None, as_json: bool) -> None:
    """Embed texts with an adapter and with its base, side by side.

    With two texts or more, the similarity of the first to each of the others is shown.
    """
    with connect() as shoal:
        comparison = compare(shoal, model, list(texts), base=base)
    if as_json:
        render.print_json(comparison)
    else:
        render.print_comparison(comparison)


@main.command()
@json_option
@click.pass_obj
@guarded
def workers(connect: Callable[[], Shoal], as_json: bool) -> None:
    """List the workers and what they are doing."""
    with connect() as shoal:
        rows = shoal.workers()
    if as_json:
        render.print_json(rows)
    else:
        render.print_workers(rows)


if __name__ == "__main__":
    main()
