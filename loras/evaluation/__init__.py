"""Evaluation on upload: rows, metrics, measuring through the gateway, the decision."""
