"""Spans and points of time, where PyFlink has them."""

from headgate.functions.time import Duration, Instant, Time

__all__ = ["Duration", "Instant", "Time"]
