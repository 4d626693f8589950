"""Verbs of adapters, versions and aliases. Each owns its transaction and publishes on commit."""

from loras.services.aliases import move_alias, remove_alias, rollback
from loras.services.removal import delete_adapter, discard_unused_content, retire_version
from loras.services.sweep import sweep_incoming_files, sweep_versions
from loras.services.uploads import Received, receive_upload
from loras.services.validations import (
    Claim,
    abandon_claim,
    answer_question,
    claim_validation,
    finish_validation,
    start_validation,
    validate_claimed,
)

__all__ = [
    "Claim",
    "Received",
    "abandon_claim",
    "answer_question",
    "claim_validation",
    "delete_adapter",
    "discard_unused_content",
    "finish_validation",
    "move_alias",
    "receive_upload",
    "remove_alias",
    "retire_version",
    "rollback",
    "start_validation",
    "sweep_incoming_files",
    "sweep_versions",
    "validate_claimed",
]
