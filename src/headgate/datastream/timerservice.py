"""The timer service, where PyFlink has it."""

from headgate.functions.context import TimerService

__all__ = ["TimerService"]
