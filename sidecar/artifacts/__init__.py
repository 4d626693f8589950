"""Artifacts of this machine: one download per digest, checked, bounded on disk."""
