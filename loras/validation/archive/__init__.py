"""Archives to files: names, sizes and entries are bounded before anything is written."""
