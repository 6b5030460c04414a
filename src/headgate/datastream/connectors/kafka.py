"""Kafka, where PyFlink has it; needs the extra ``kafka`` when a job runs."""

from headgate.connectors.kafka.deserialization import (
    KafkaRecord,
    KafkaRecordDeserializationSchema,
)
from headgate.connectors.kafka.offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
)
from headgate.connectors.kafka.schema_registry import SchemaRegistry
from headgate.connectors.kafka.serialization import (
    KafkaRecordSerializationSchema,
    KafkaRecordSerializationSchemaBuilder,
    KafkaTopicSelector,
)
from headgate.connectors.kafka.sink import KafkaSink, KafkaSinkBuilder
from headgate.connectors.kafka.source import KafkaSource, KafkaSourceBuilder
from headgate.datastream.connectors.base import DeliveryGuarantee

__all__ = [
    "DeliveryGuarantee",
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "KafkaRecord",
    "KafkaRecordDeserializationSchema",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaSink",
    "KafkaSinkBuilder",
    "KafkaSource",
    "KafkaSourceBuilder",
    "KafkaTopicPartition",
    "KafkaTopicSelector",
    "SchemaRegistry",
]
