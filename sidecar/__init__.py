"""The sidecar: one per machine. Owns NATS, the artifact cache, deadlines, acks and the queue its devices share."""
