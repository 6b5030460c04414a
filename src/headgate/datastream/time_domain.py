"""The kinds of time, where PyFlink has them."""

from headgate.functions.context import TimeDomain

__all__ = ["TimeDomain"]
