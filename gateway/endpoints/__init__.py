"""One class for each path that asks for a key."""
