"""What becomes of checkpoints, where PyFlink has it."""

from headgate.api.checkpointing import ExternalizedCheckpointRetention

__all__ = ["ExternalizedCheckpointRetention"]
