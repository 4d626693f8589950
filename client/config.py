"""Where Shoal is and which key to use: flags, then environment, then ``shoal login``, then a stack running here."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from client.errors import NotSignedIn

DEFAULT_URL = "http://127.0.0.1:8000"


@dataclass(frozen=True, slots=True)
class Connection:
    """Addresses without a trailing slash. ``gateway_url`` is empty where only the control plane knows it."""

    url: str
    api_key: str
    gateway_url: str = ""


def config_path() -> Path:
    """File that ``shoal login`` writes (mode 600)."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return home / "shoal" / "login.json"


def find_connection(url: str | None = None, api_key: str | None = None) -> Connection:
    """The connection to use. Raises ``NotSignedIn`` saying what to set."""
    saved, local = _read(config_path()), _local_stack()
    url = url or os.environ.get("SHOAL_URL") or saved.get("url") or local.get("web") or DEFAULT_URL
    url = url.rstrip("/")
    key = api_key or _environment_key()
    for source, address in ((saved, saved.get("url")), (local, local.get("web"))):
        if not key and address == url:
            key = source.get("api_key", "")
    if not key:
        raise NotSignedIn(
            f"No API key for {url}. Run `shoal login`, or set SHOAL_URL and SHOAL_API_KEY. "
            "A key is made on the Keys page."
        )
    gateway = os.environ.get("SHOAL_GATEWAY_URL") or (local.get("gateway", "") if local.get("web") == url else "")
    return Connection(url, key, gateway.rstrip("/"))


def save_login(url: str, api_key: str) -> Path:
    """Remembers a login in :func:`config_path`."""
    path = config_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump({"url": url.rstrip("/"), "api_key": api_key}, file)
    temporary.replace(path)
    return path


def _environment_key() -> str:
    path = os.environ.get("SHOAL_API_KEY_FILE")
    return Path(path).read_text().strip() if path else os.environ.get("SHOAL_API_KEY", "")


def _local_stack() -> dict[str, str]:
    home = Path(os.environ.get("SHOAL_HOME", ".shoal"))
    endpoints = _read(home / "endpoints.json")
    return {**endpoints, **_read(home / "credentials.json")} if endpoints else {}


def _read(path: Path) -> dict[str, str]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return {key: value for key, value in content.items() if isinstance(value, str)}
