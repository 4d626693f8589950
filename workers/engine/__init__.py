"""The worker's process: stages joined by bounded queues around the one thread that owns the device."""
