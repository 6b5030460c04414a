"""The environment, where PyFlink has it."""

from headgate.api.environment import StreamExecutionEnvironment

__all__ = ["StreamExecutionEnvironment"]
