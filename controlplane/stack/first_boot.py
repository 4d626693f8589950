"""``python -m controlplane.stack.first_boot``: makes the first account and keys, and keeps them in the home.

Runs at each start and changes nothing once all is there.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import django
from django.db import transaction

from controlplane.stack.home import Credentials, Home, write_private
from wire.errors import ShoalError
from wire.registry import Scope


def keep_secrets(home: Home, made: dict[str, str]) -> None:
    """Write what bootstrap made just now; what the files hold already and was not made anew stays."""
    if machine_key := made.get("machine_key"):
        write_private(home.machine_key_path, machine_key.encode())
    if "password" not in made and "api_key" not in made:
        return
    kept = home.read_credentials() or Credentials(None, None, None)
    home.write_credentials(
        Credentials(
            username=made.get("username", kept.username),
            password=made.get("password", kept.password),
            api_key=made.get("api_key", kept.api_key),
        )
    )


def issue_lost_machine_key(home: Home) -> None:
    """A new machine key when the home has none although the database knows one: its file was lost, or the home is
    another machine's."""
    from django.contrib.auth.models import User

    from controlplane.accounts.services import create_team_for, issue_api_key

    if home.machine_key_path.exists() or "SHOAL_MACHINE_KEY" in os.environ or "SHOAL_MACHINE_KEY_FILE" in os.environ:
        return
    with transaction.atomic():
        admin = User.objects.filter(is_superuser=True).order_by("pk").first()
        if admin is None:
            return
        name = f"machine {socket.gethostname()}"
        issued = issue_api_key(team=create_team_for(user=admin), name=name, scopes=[Scope.MACHINE], actor=admin)
        write_private(home.machine_key_path, issued.secret.encode())


def main() -> int:
    """0 once all is there."""
    django.setup()

    from controlplane.bootstrap import bootstrap_site

    home = Home(Path(os.environ["SHOAL_HOME"]))
    try:
        bootstrap_site(lambda made: keep_secrets(home, made))
    except ShoalError as error:
        print(f"bootstrap: {error.info.message} {error.info.hint or ''}", file=sys.stderr)
        return 1
    issue_lost_machine_key(home)
    return 0


if __name__ == "__main__":
    sys.exit(main())
