"""``python -m controlplane.stack.prepare``: migrates, makes the first account and keys, keeps them in the home.

One process for all of it, since most of its time is Django's start. Runs at each start of the stack and changes nothing
once all is there.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import django
from django.core.management import call_command
from django.db import transaction

from controlplane.stack.home import Credentials, Home, write_private
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

    from controlplane.bootstrap import bootstrap_accounts

    home = Home(Path(os.environ["SHOAL_HOME"]))
    call_command("migrate", interactive=False, verbosity=0)
    bootstrap_accounts(lambda made: keep_secrets(home, made))
    issue_lost_machine_key(home)
    return 0


if __name__ == "__main__":
    sys.exit(main())
