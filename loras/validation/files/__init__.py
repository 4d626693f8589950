"""Which of an upload's files are an adapter or a model, and which formats are those of other tools."""
