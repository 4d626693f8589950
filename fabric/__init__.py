"""What gateway, sidecar and control plane share on NATS: connection, topology, mirrors, records, payloads."""
