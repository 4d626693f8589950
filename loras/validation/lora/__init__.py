"""The checks of an adapter, from its configuration to its canonical artifact."""
