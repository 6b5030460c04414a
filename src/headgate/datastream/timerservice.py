"""The timer service, where PyFlink has it."""

from headgate.core.chain.timer_service import TimerService

__all__ = ["TimerService"]
