"""What concerns all operators, where PyFlink has it."""

from headgate.api.configuration import ExecutionConfig

__all__ = ["ExecutionConfig"]
