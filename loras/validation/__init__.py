"""Judges uploads: pure checks on what an upload holds, run in a limited child process, then a probe of its output."""
