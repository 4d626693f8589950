"""Wrong settings are all named at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.stack.failures import StackError
from controlplane.stack.settings import load_settings


def test_every_wrong_value_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_WEB_PORT", "eight thousand")
    monkeypatch.setenv("SHOAL_GATEWAY_PORT", "70000")
    with pytest.raises(StackError) as raised:
        load_settings()
    assert "SHOAL_WEB_PORT" in str(raised.value)
    assert "SHOAL_GATEWAY_PORT" in str(raised.value)


def test_value_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "redis").write_text("redis://user:secret@redis.example.org/0\n")
    monkeypatch.delenv("REDIS_URL", raising=False)
    monkeypatch.setenv("REDIS_URL_FILE", str(tmp_path / "redis"))
    assert load_settings().redis_url == "redis://user:secret@redis.example.org/0"
    monkeypatch.setenv("REDIS_URL_FILE", str(tmp_path / "missing"))
    with pytest.raises(StackError, match=r"REDIS_URL_FILE names .*missing: No such file"):
        load_settings()


def test_empty_means_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATS_URL", "")
    monkeypatch.setenv("SHOAL_WEB_PORT", "")
    assert (load_settings().nats_url, load_settings().web_port) == ("", 8000)
