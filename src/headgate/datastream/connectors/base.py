"""Bases of sources and sinks, where PyFlink has them."""

from headgate.functions.sink import DeliveryGuarantee, Sink
from headgate.functions.source import Source

__all__ = ["DeliveryGuarantee", "Sink", "Source"]
