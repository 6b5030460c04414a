"""What becomes of checkpoints, where PyFlink has it."""

from headgate.api.settings.checkpointing import ExternalizedCheckpointRetention

__all__ = ["ExternalizedCheckpointRetention"]
