"""Exactly or at least once, where PyFlink has it."""

from headgate.api.settings.checkpointing import CheckpointingMode

__all__ = ["CheckpointingMode"]
