"""The checks of a whole model, from its files to its canonical artifact."""
