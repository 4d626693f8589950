"""Pure policies of residency: how often something was used of late, and what leaves when room is needed."""
