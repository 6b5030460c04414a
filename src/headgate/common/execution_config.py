"""What concerns all operators, where PyFlink has it."""

from headgate.api.settings.configuration import ExecutionConfig

__all__ = ["ExecutionConfig"]
