"""Sources and sinks, and the base classes for your own; re-exports only.

What needs pyarrow or a client library is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from headgate.connectors.blackhole import DiscardSink
from headgate.connectors.files.sink import CsvSink, FileSink, JsonLinesSink, TextFileSink
from headgate.connectors.files.source import (
    CsvSource,
    FileSource,
    JsonLinesSource,
    StreamFormat,
    TextFileSource,
)
from headgate.connectors.formats.csv import CsvDialect
from headgate.connectors.generator import DataGeneratorSource, NumberSequenceSource
from headgate.connectors.print_sink import PrintSink
from headgate.connectors.socket import SocketTextSource
from headgate.connectors.sql import DbApiSink, SqliteSink
from headgate.functions.sink import (
    Committer,
    CommittingSinkWriter,
    DeliveryGuarantee,
    Sink,
    SinkWriter,
    TwoPhaseCommittingSink,
)
from headgate.functions.source import Source, SplitEnumerator, SplitLag, SplitReader

if TYPE_CHECKING:
    from headgate.connectors.delta.sink import DeltaSink
    from headgate.connectors.delta.source import DeltaSource
    from headgate.connectors.files.parquet import ParquetSink
    from headgate.connectors.files.parquet_source import ParquetSource
    from headgate.connectors.http.poster import HttpLimits
    from headgate.connectors.http.sink import HttpBatching, HttpSink
    from headgate.connectors.iceberg.sink import IcebergSink
    from headgate.connectors.iceberg.source import IcebergSource
    from headgate.connectors.kafka.serialization import KafkaRecordSerializationSchema
    from headgate.connectors.kafka.sink import KafkaSink
    from headgate.connectors.kafka.source import KafkaSource
    from headgate.connectors.mqtt.sink import MqttSink
    from headgate.connectors.mqtt.source import MqttMessage, MqttSource
    from headgate.connectors.nats.sink import NatsSink
    from headgate.connectors.nats.source import NatsMessage, NatsSource
    from headgate.connectors.not_sent import NOT_SENT
    from headgate.connectors.postgres.changes import PostgresChangesSource
    from headgate.connectors.postgres.sink import PostgresSink
    from headgate.connectors.redis.sink import RedisStreamSink
    from headgate.connectors.redis.source import RedisEntry, RedisStreamSource
    from headgate.connectors.streaming.sink import StreamingOutput
    from headgate.connectors.streaming.source import StreamingInput

__all__ = [
    "NOT_SENT",
    "Committer",
    "CommittingSinkWriter",
    "CsvDialect",
    "CsvSink",
    "CsvSource",
    "DataGeneratorSource",
    "DbApiSink",
    "DeliveryGuarantee",
    "DeltaSink",
    "DeltaSource",
    "DiscardSink",
    "FileSink",
    "FileSource",
    "HttpBatching",
    "HttpLimits",
    "HttpSink",
    "IcebergSink",
    "IcebergSource",
    "JsonLinesSink",
    "JsonLinesSource",
    "KafkaRecordSerializationSchema",
    "KafkaSink",
    "KafkaSource",
    "MqttMessage",
    "MqttSink",
    "MqttSource",
    "NatsMessage",
    "NatsSink",
    "NatsSource",
    "NumberSequenceSource",
    "ParquetSink",
    "ParquetSource",
    "PostgresChangesSource",
    "PostgresSink",
    "PrintSink",
    "RedisEntry",
    "RedisStreamSink",
    "RedisStreamSource",
    "Sink",
    "SinkWriter",
    "SocketTextSource",
    "Source",
    "SplitEnumerator",
    "SplitLag",
    "SplitReader",
    "SqliteSink",
    "StreamFormat",
    "StreamingInput",
    "StreamingOutput",
    "TextFileSink",
    "TextFileSource",
    "TwoPhaseCommittingSink",
]


_LAZY = {
    "StreamingInput": "headgate.connectors.streaming.source",
    "StreamingOutput": "headgate.connectors.streaming.sink",
    "MqttMessage": "headgate.connectors.mqtt.source",
    "MqttSource": "headgate.connectors.mqtt.source",
    "MqttSink": "headgate.connectors.mqtt.sink",
    "NatsMessage": "headgate.connectors.nats.source",
    "NatsSource": "headgate.connectors.nats.source",
    "NatsSink": "headgate.connectors.nats.sink",
    "HttpLimits": "headgate.connectors.http.poster",
    "HttpBatching": "headgate.connectors.http.sink",
    "HttpSink": "headgate.connectors.http.sink",
    "RedisEntry": "headgate.connectors.redis.source",
    "RedisStreamSink": "headgate.connectors.redis.sink",
    "RedisStreamSource": "headgate.connectors.redis.source",
    "DeltaSink": "headgate.connectors.delta.sink",
    "DeltaSource": "headgate.connectors.delta.source",
    "IcebergSink": "headgate.connectors.iceberg.sink",
    "IcebergSource": "headgate.connectors.iceberg.source",
    "KafkaRecordSerializationSchema": "headgate.connectors.kafka.serialization",
    "KafkaSink": "headgate.connectors.kafka.sink",
    "KafkaSource": "headgate.connectors.kafka.source",
    "NOT_SENT": "headgate.connectors.not_sent",
    "ParquetSink": "headgate.connectors.files.parquet",
    "PostgresChangesSource": "headgate.connectors.postgres.changes",
    "PostgresSink": "headgate.connectors.postgres.sink",
    "ParquetSource": "headgate.connectors.files.parquet_source",
}


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
