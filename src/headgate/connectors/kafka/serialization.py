"""How a record of the stream becomes a record of a topic.

Law: what is called here is the user's code or a format's; a record is made once, and what was made
is written however often a write is tried.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from headgate.base.elements import Record
from headgate.base.errors import PlanInvalid
from headgate.connectors.formats.schemas import SerializationSchema
from headgate.connectors.kafka.client import SettingsBuilder

ProducerRecord: TypeAlias = tuple[Any, ...]
"""Topic, value, key, partition, two callbacks that are None, time, headers: what ``produce`` of the
client takes, in its order; it may end earlier.
"""
Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
ANY_PARTITION = -1
NOW = 0


class KafkaTopicSelector(ABC):
    """Chooses the topic of each record."""

    @abstractmethod
    def apply(self, data: Record) -> str:
        """The name of the topic."""


class KafkaRecordSerializationSchema:
    """Topic, key, value, partition, time and headers of the records that a sink writes.

    ::

        KafkaRecordSerializationSchema.builder() \\
            .set_topic("orders") \\
            .set_key_serialization_schema(lambda order: order["customer"].encode()) \\
            .set_value_serialization_schema(JsonRowSerializationSchema...build()) \\
            .build()
    """

    def __init__(
        self,
        topic: "str | KafkaTopicSelector | Callable[[Record], str]",
        value: object,
        key: object = None,
        partitioner: Callable[[Record], int | None] | None = None,
        headers: Callable[[Record], Headers | None] | None = None,
        timestamp: Callable[[Record], int | None] | None = None,
    ) -> None:
        """``value`` and ``key`` are a SerializationSchema or a function to bytes."""
        self.topic = topic
        self.value = value
        self.key = key
        self.partitioner = partitioner
        self.headers = headers
        self.timestamp = timestamp
        self.function()  # what cannot be called is told when the program is written
        for name, function in (
            ("partitioner", partitioner),
            ("header provider", headers),
            ("timestamp provider", timestamp),
        ):
            if function is not None and not callable(function):
                raise PlanInvalid(
                    f"KafkaSink was given the {name} {function!r}; give a function of the record"
                )

    @staticmethod
    def builder() -> "KafkaRecordSerializationSchemaBuilder":
        return KafkaRecordSerializationSchemaBuilder()

    @property
    def fixed_topic(self) -> str | None:
        """The topic, if it is the same for all records."""
        return self.topic if isinstance(self.topic, str) else None

    @property
    def has_details(self) -> bool:
        """Whether records have more than topic, value and key."""
        return any((self.partitioner, self.headers, self.timestamp))

    def open(self) -> None:
        """Called in each task before the first record."""
        opened: list[object] = []
        try:
            for schema in (self.value, self.key):
                call_if_there(schema, "open")
                opened.append(schema)
        except BaseException:
            for schema in opened:
                call_if_there(schema, "close")
            raise

    def close(self) -> None:
        """Called once for each ``open``."""
        for schema in (self.value, self.key):
            call_if_there(schema, "close")

    def function(self) -> Callable[[Record], ProducerRecord]:
        """What makes a record for the client; it does no more than it has to."""
        topic = self.fixed_topic
        choose = _topic_function(self.topic)
        value = _bytes_function(self.value, "value")
        key = None if self.key is None else _bytes_function(self.key, "key")
        if self.has_details:
            return self._whole_function(choose, value, key)
        if topic is None and key is None:
            return lambda record: (choose(record), value(record))
        if topic is None and key is not None:
            return lambda record: (choose(record), value(record), key(record))
        if key is None:
            return lambda record: (topic, value(record))
        return lambda record: (topic, value(record), key(record))

    def _whole_function(
        self,
        choose: Callable[[Record], str],
        value: Callable[[Record], bytes | None],
        key: Callable[[Record], bytes | None] | None,
    ) -> Callable[[Record], ProducerRecord]:
        partition, timestamp, headers = self.partitioner, self.timestamp, self.headers

        def make(record: Record) -> ProducerRecord:
            number = partition(record) if partition else None
            time_ms = timestamp(record) if timestamp else None
            pairs = headers(record) if headers else None
            return (
                choose(record),
                value(record),
                key(record) if key else None,
                ANY_PARTITION if number is None else number,
                None,
                None,
                NOW if time_ms is None else time_ms,
                list(pairs) if pairs else None,
            )

        return make


class KafkaRecordSerializationSchemaBuilder(SettingsBuilder):
    """Gathers how records are written, under PyFlink's names and some of Java's."""

    def set_topic(self, topic: str) -> "KafkaRecordSerializationSchemaBuilder":
        """The topic of all records."""
        return self._set("topic", topic)

    def set_topic_selector(
        self, topic_selector: "KafkaTopicSelector | Callable[[Record], str]"
    ) -> "KafkaRecordSerializationSchemaBuilder":
        """Chooses the topic of each record."""
        return self._set("topic", topic_selector)

    def set_value_serialization_schema(
        self, value_serialization_schema: "SerializationSchema | Callable[[Record], bytes | None]"
    ) -> "KafkaRecordSerializationSchemaBuilder":
        """How a record becomes the value; None deletes the key in a compacted topic."""
        return self._set("value", value_serialization_schema)

    def set_key_serialization_schema(
        self, key_serialization_schema: "SerializationSchema | Callable[[Record], bytes | None]"
    ) -> "KafkaRecordSerializationSchemaBuilder":
        """How a record becomes the key; without it there is none."""
        return self._set("key", key_serialization_schema)

    def set_partitioner(
        self, partitioner: Callable[[Record], int | None]
    ) -> "KafkaRecordSerializationSchemaBuilder":
        """The number of a record's partition; None leaves it to the client, as by default."""
        return self._set("partitioner", partitioner)

    def set_header_provider(
        self, header_provider: Callable[[Record], Headers | None]
    ) -> "KafkaRecordSerializationSchemaBuilder":
        """Headers of a record: pairs of a name and bytes."""
        return self._set("headers", header_provider)

    def set_timestamp_provider(
        self, timestamp_provider: Callable[[Record], int | None]
    ) -> "KafkaRecordSerializationSchemaBuilder":
        """A record's time in Kafka, in milliseconds since 1970; by default that of the write."""
        return self._set("timestamp", timestamp_provider)

    def build(self) -> KafkaRecordSerializationSchema:
        for part, setter in (("topic", "set_topic"), ("value", "set_value_serialization_schema")):
            if self._settings.get(part) is None:
                raise PlanInvalid(
                    f"KafkaRecordSerializationSchema: call {setter}(...) before build()"
                )
        return KafkaRecordSerializationSchema(**self._settings)


def _topic_function(topic: object) -> Callable[[Record], str]:
    if isinstance(topic, str) and topic:
        return lambda record: topic
    apply = getattr(topic, "apply", None)
    chosen: Callable[[Record], str] | None = apply if callable(apply) else None
    if chosen is None and callable(topic):
        chosen = topic
    if chosen is None:
        raise PlanInvalid(
            f"KafkaSink was given the topic {topic!r}; give its name, a KafkaTopicSelector, or a "
            f"function of the record"
        )
    return chosen


def _bytes_function(schema: object, part: str) -> Callable[[Record], bytes | None]:
    serialize = getattr(schema, "serialize", None)
    if callable(serialize):
        found: Callable[[Record], bytes | None] = serialize
        return found
    if callable(schema):
        return schema
    raise PlanInvalid(
        f"KafkaSink was given the {part}'s schema {schema!r}; give a SerializationSchema, for "
        f"instance SimpleStringSchema(), or a function that returns bytes"
    )


def call_if_there(schema: object, name: str) -> None:
    """``open`` or ``close`` of a schema, which most do not have."""
    method = getattr(schema, name, None)
    if callable(method):
        method()
