"""Forms of the keys page."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.utils import timezone

from controlplane.accounts.principal import Principal
from controlplane.accounts.queries import teams_to_issue
from controlplane.accounts.services import KeyLimits
from wire.registry import Scope

SCOPE_WORDS: dict[Scope, str] = {
    Scope.READ: "See adapters, versions, the fleet",
    Scope.PUSH: "Upload versions, move aliases, roll back",
    Scope.INFER: "Send requests to the gateway",
    Scope.ADMIN: "All of the above, and keys, drains, deletions",
    Scope.MACHINE: "For a sidecar: fetch artifacts. Nothing else.",
}
_LIFETIMES_D = {"30": "30 days", "90": "90 days", "365": "1 year", "": "Never"}


class KeyLimitsForm(forms.Form):
    """What may change of a key: its name and limits."""

    name = forms.CharField(max_length=100, label="Name")
    max_in_flight = forms.IntegerField(
        required=False, min_value=1, max_value=1_000_000, label="Requests at once", help_text="Empty is no limit."
    )
    requests_per_minute = forms.IntegerField(
        required=False, min_value=1, max_value=10_000_000, label="Requests a minute", help_text="Empty is no limit."
    )

    @property
    def limits(self) -> KeyLimits:
        return KeyLimits(self.cleaned_data["max_in_flight"], self.cleaned_data["requests_per_minute"])


class KeyForm(forms.Form):
    """A new API key: offers the person's teams, and scopes that they may give in at least one of them."""

    name = forms.CharField(max_length=100, label="Name", help_text="Where it will be used, so that you know it again.")
    team = forms.ChoiceField(label="Team")
    scopes = forms.MultipleChoiceField(label="Scopes", widget=forms.CheckboxSelectMultiple)
    lifetime_d = forms.ChoiceField(label="Expires", choices=list(_LIFETIMES_D.items()), required=False, initial="90")

    def __init__(self, principal: Principal, data: Any = None) -> None:
        super().__init__(data)
        self.grantable = teams_to_issue(principal)
        scopes = [scope for scope in Scope if any(scope in granted for granted in self.grantable.values())]
        self.fields["team"] = forms.ChoiceField(label="Team", choices=[(name, name) for name in self.grantable])
        self.fields["scopes"] = forms.MultipleChoiceField(
            label="Scopes",
            choices=[(scope.value, SCOPE_WORDS[scope]) for scope in scopes],
            widget=forms.CheckboxSelectMultiple,
            initial=[Scope.INFER.value],
            error_messages={"required": "Choose at least one scope."},
        )
        self.fields["name"].widget.attrs |= {"placeholder": "ci-pipeline", "autocomplete": "off"}

    def clean(self) -> dict[str, Any]:
        """Scopes are offered for all teams together; what may be given in the chosen one is said beside them."""
        found = super().clean() or {}
        granted = self.grantable.get(found.get("team", ""), frozenset())
        excess = [scope for scope in found.get("scopes", []) if Scope(scope) not in granted]
        if excess and "team" in found:
            self.add_error("scopes", f"You cannot give the scope {', '.join(excess)} in team {found['team']}.")
        return found

    @property
    def chosen_scopes(self) -> list[Scope]:
        return [Scope(value) for value in self.cleaned_data["scopes"]]

    @property
    def expires_at(self) -> datetime | None:
        days = self.cleaned_data["lifetime_d"]
        return timezone.now() + timedelta(days=int(days)) if days else None
