"""What can stand in for the torch engine in a worker process."""
