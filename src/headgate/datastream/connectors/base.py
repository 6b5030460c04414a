"""Bases of sources and sinks, where PyFlink has them."""

from headgate.api.source import DeliveryGuarantee, Sink, Source

__all__ = ["DeliveryGuarantee", "Sink", "Source"]
