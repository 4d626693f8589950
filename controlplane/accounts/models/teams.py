"""A team owns adapters and keys; people belong to teams."""

from __future__ import annotations

from django.conf import settings
from django.core.validators import RegexValidator
from django.db import models

from wire.names import PART

validate_name = RegexValidator(
    PART, "Use 1 to 63 characters of a-z, 0-9, '.', '_' or '-', starting with a letter or digit."
)


class Team(models.Model):
    """Owner of adapters. Its name is the first part of every full name."""

    name = models.CharField(max_length=63, unique=True, validators=[validate_name])
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    """A person's role in a team."""

    class Role(models.TextChoices):
        OWNER = "owner"
        MEMBER = "member"
        VIEWER = "viewer"

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=10, choices=Role.choices, default=Role.OWNER)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "user"], name="one_membership_per_person")]

    def __str__(self) -> str:
        return f"{self.user} in {self.team} as {self.role}"
