"""Conformance suite of the socket protocol: plays a worker to a sidecar, or a sidecar to a worker command."""
