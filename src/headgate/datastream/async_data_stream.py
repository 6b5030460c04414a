"""Asynchronous functions on streams, where PyFlink has them."""

from headgate.api.async_data_stream import AsyncDataStream

__all__ = ["AsyncDataStream"]
