"""Sources and sinks, and the base classes for your own; re-exports only."""

from headgate.api.source import Sink, SinkWriter, Source, SplitReader
from headgate.connectors.blackhole import DiscardSink
from headgate.connectors.data_generator import DataGeneratorSource
from headgate.connectors.file_sink import CsvSink, FileSink, JsonLinesSink, TextFileSink
from headgate.connectors.files import FileSource, StreamFormat, TextFileSource
from headgate.connectors.number_sequence import NumberSequenceSource
from headgate.connectors.print_sink import PrintSink
from headgate.connectors.socket_text import SocketTextSource

__all__ = [
    "CsvSink",
    "DataGeneratorSource",
    "DiscardSink",
    "FileSink",
    "FileSource",
    "JsonLinesSink",
    "NumberSequenceSource",
    "PrintSink",
    "Sink",
    "SinkWriter",
    "SocketTextSource",
    "Source",
    "SplitReader",
    "StreamFormat",
    "TextFileSink",
    "TextFileSource",
]
