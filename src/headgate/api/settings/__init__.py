"""Settings as a program writes them: configuration, checkpoints, restarts, state backends."""
