"""The kinds of time, where PyFlink has them."""

from headgate.core.chain.timer_service import TimeDomain

__all__ = ["TimeDomain"]
