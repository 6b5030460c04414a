"""Streaming or batch, where PyFlink has it."""

from headgate.api.settings.configuration import RuntimeExecutionMode

__all__ = ["RuntimeExecutionMode"]
