"""Judges uploads: pure checks in a limited child process, then a probe of what the adapter does."""
