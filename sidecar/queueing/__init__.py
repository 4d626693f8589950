"""Pure policies of the machine's queue: no I/O, the clock is passed in."""
