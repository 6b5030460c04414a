"""Checkpoints as a program asks for them, where PyFlink has them."""

from headgate.api.checkpointing import CheckpointConfig

__all__ = ["CheckpointConfig"]
