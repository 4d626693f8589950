"""Boot errors come all at once; secrets come from files; the deployment check passes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from controlplane.settings.environment import load_environment

ROOT = Path(__file__).parents[3]


def manage(home: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "manage.py", *arguments],
        cwd=ROOT,
        env={**os.environ, "SHOAL_HOME": str(home), "DATABASE_URL": "", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )


def test_every_wrong_setting_is_named_in_one_go(tmp_path: Path) -> None:
    done = manage(
        tmp_path,
        "check",
        SHOAL_WEB_PORT="eighty",
        SHOAL_STORAGE_URL="ftp://there",
        SHOAL_LOG_LEVEL="LOUD",
        SHOAL_SECRET_KEY_FILE="/no/such/file",
        SHOAL_QUEUE_STORAGE="paper",
    )
    assert done.returncode != 0
    for name in ("SHOAL_WEB_PORT", "SHOAL_STORAGE_URL", "SHOAL_LOG_LEVEL", "SHOAL_SECRET_KEY", "SHOAL_QUEUE_STORAGE"):
        assert name in done.stderr, done.stderr
    assert "/no/such/file" in done.stderr


def test_validations_may_take_the_time_they_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_VALIDATION_TIMEOUT_S", "300")
    assert load_environment().sweep_after_s == 405
    # the sweeper would take validations to be dead that are not
    monkeypatch.setenv("SHOAL_SWEEP_AFTER_S", "150")
    with pytest.raises(ImproperlyConfigured, match=r"SHOAL_SWEEP_AFTER_S: 150 .* use at least 330"):
        load_environment()


def test_deployment_check_with_a_secret_from_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s" * 20 + "0123456789abcdefghijklmnopqrstuvwxyz-of-file\n")
    done = manage(
        tmp_path, "check", "--deploy", "--fail-level", "WARNING",
        SHOAL_SECRET_KEY_FILE=str(secret), SHOAL_PUBLIC_HTTPS="true",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "secret_key").exists()


@pytest.mark.parametrize("command", [["makemigrations", "--check", "--dry-run"], ["check"]])
def test_project_is_whole(tmp_path: Path, command: list[str]) -> None:
    done = manage(tmp_path, *command)
    assert done.returncode == 0, done.stdout + done.stderr


def test_schema_is_valid_and_the_committed_one(tmp_path: Path) -> None:
    made = tmp_path / "openapi.yaml"
    done = manage(tmp_path, "spectacular", "--validate", "--fail-on-warn", "--file", str(made))
    assert done.returncode == 0, done.stderr
    committed = ROOT / "docs" / "openapi.yaml"
    assert committed.read_text() == made.read_text(), (
        "run: manage.py spectacular --validate --fail-on-warn --file docs/openapi.yaml"
    )
