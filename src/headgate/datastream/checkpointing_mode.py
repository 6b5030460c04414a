"""Exactly or at least once, where PyFlink has it."""

from headgate.api.checkpointing import CheckpointingMode

__all__ = ["CheckpointingMode"]
