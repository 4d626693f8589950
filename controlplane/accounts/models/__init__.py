"""Teams, memberships and API keys."""

from controlplane.accounts.models.keys import ApiKey
from controlplane.accounts.models.quotas import TeamQuota
from controlplane.accounts.models.teams import Membership, Team

__all__ = ["ApiKey", "Membership", "Team", "TeamQuota"]
