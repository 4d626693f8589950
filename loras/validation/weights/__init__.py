"""Weight files: headers, pickles and numbers, read a bounded piece at a time."""
