"""Streaming or batch, where PyFlink has it."""

from headgate.api.configuration import RuntimeExecutionMode

__all__ = ["RuntimeExecutionMode"]
