"""What is read out of a model's states, one module per task."""
