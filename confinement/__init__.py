"""Limits that a process which touches an upload puts on itself. Imports nothing of ours."""
