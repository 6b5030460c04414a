"""Streams, where PyFlink has them."""

from headgate.api.cached import CachedDataStream
from headgate.api.connected import BroadcastConnectedStream, ConnectedStreams
from headgate.api.datastream import BroadcastStream, DataStream
from headgate.api.joined import CoGroupedStreams, JoinedStreams
from headgate.api.keyed import KeyedStream
from headgate.api.sinks import CloseableIterator, DataStreamSink
from headgate.api.windowed import AllWindowedStream, WindowedStream

__all__ = [
    "AllWindowedStream",
    "BroadcastConnectedStream",
    "BroadcastStream",
    "CachedDataStream",
    "CloseableIterator",
    "CoGroupedStreams",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "JoinedStreams",
    "KeyedStream",
    "WindowedStream",
]
