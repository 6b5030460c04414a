"""Streams, where PyFlink has them."""

from headgate.api.connected import ConnectedStreams
from headgate.api.datastream import DataStream
from headgate.api.keyed import KeyedStream
from headgate.api.sinks import CloseableIterator, DataStreamSink

__all__ = [
    "CloseableIterator",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "KeyedStream",
]
