"""State of checkpoints and savepoints outside jobs: read as rows, and written."""
