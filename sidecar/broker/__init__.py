"""The NATS side: link, pulls, answers, dead jobs, cancellations."""
