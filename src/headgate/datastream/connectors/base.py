"""Bases of sources and sinks, where PyFlink has them."""

from headgate.api.source import Sink, Source

__all__ = ["Sink", "Source"]
