"""Verbs of adapters, versions and aliases. Each owns its transaction and publishes on commit."""

from loras.services.aliases import move_alias, remove_alias, rollback
from loras.services.evaluations import attach_evaluation
from loras.services.holds import hold_canary, open_hold, resume_canary
from loras.services.removal import (
    delete_adapter,
    delete_version,
    discard_unused_content,
    purge_deleted,
    restore_adapter,
    restore_version,
    retire_version,
)
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
    "attach_evaluation",
    "claim_validation",
    "delete_adapter",
    "delete_version",
    "discard_unused_content",
    "finish_validation",
    "hold_canary",
    "move_alias",
    "open_hold",
    "purge_deleted",
    "receive_upload",
    "remove_alias",
    "restore_adapter",
    "restore_version",
    "resume_canary",
    "retire_version",
    "rollback",
    "start_validation",
    "sweep_incoming_files",
    "sweep_versions",
    "validate_claimed",
]
