"""Checkpoints as a program asks for them, where PyFlink has them."""

from headgate.api.settings.checkpointing import CheckpointConfig

__all__ = ["CheckpointConfig"]
