"""The ``shoal`` command. Exit codes: 0 ready or done, 1 refused, 2 rejected or wrong usage, 3 unreachable, 4 a question
is open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from client import render
from client.api import Shoal
from client.config import DEFAULT_URL, Connection, save_login
from client.edge import guarded, json_option
from client.push_command import push
from client.similarity import compare
from wire.names import LIVE, parse_full_name


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


main.add_command(push)


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
