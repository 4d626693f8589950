"""Which address and key the client uses: flags, environment, login, a stack running here."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from client.config import config_path, find_connection, save_login
from client.errors import NotSignedIn


@pytest.fixture(autouse=True)
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("SHOAL_URL", "SHOAL_API_KEY", "SHOAL_API_KEY_FILE", "SHOAL_GATEWAY_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path


def _run_stack(home: Path) -> None:
    (home / "home" / "endpoints.json").write_text(
        json.dumps({"web": "http://127.0.0.1:8000", "gateway": "http://127.0.0.1:8080", "nats": "", "redis": ""})
    )
    (home / "home" / "credentials.json").write_text(json.dumps({"username": "a", "api_key": "shoal_local"}))


def test_nothing_known_says_what_to_do() -> None:
    with pytest.raises(NotSignedIn, match="shoal login"):
        find_connection()


def test_a_stack_running_here_needs_no_login(empty_home: Path) -> None:
    _run_stack(empty_home)
    found = find_connection()
    assert (found.url, found.api_key, found.gateway_url) == (
        "http://127.0.0.1:8000",
        "shoal_local",
        "http://127.0.0.1:8080",
    )


def test_a_key_is_never_sent_to_another_address(empty_home: Path) -> None:
    _run_stack(empty_home)
    save_login("https://shoal.example", "shoal_saved")
    with pytest.raises(NotSignedIn, match=r"other\.example"):
        find_connection("https://other.example")


def test_flags_beat_environment_beats_login(monkeypatch: pytest.MonkeyPatch) -> None:
    save_login("https://shoal.example/", "shoal_saved")
    assert find_connection().api_key == "shoal_saved"
    monkeypatch.setenv("SHOAL_API_KEY", "shoal_environment")
    assert find_connection().api_key == "shoal_environment"
    assert find_connection(api_key="shoal_flag").api_key == "shoal_flag"


def test_login_file_is_private() -> None:
    save_login("https://shoal.example", "shoal_saved")
    assert stat.S_IMODE(config_path().stat().st_mode) == 0o600
