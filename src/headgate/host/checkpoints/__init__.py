"""Checkpoints and savepoints in their storage: written, signed, read, verified, retained."""
