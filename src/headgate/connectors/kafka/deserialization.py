"""How a record of a topic becomes a record of the stream.

Law: what is called here is the user's code or a format's; the source itself reads only bytes.
"""

from abc import ABC, abstractmethod
from codecs import lookup
from collections.abc import Sequence
from itertools import repeat
from typing import Any, NamedTuple

from headgate.api.types.types import TypeInformation, Types
from headgate.base.elements import Record
from headgate.base.errors import PlanInvalid
from headgate.connectors.checks import DESERIALIZER, check_settings
from headgate.connectors.formats.schemas import DeserializationSchema, SimpleStringSchema
from headgate.connectors.kafka.serialization import call_if_there


class KafkaRecord(NamedTuple):
    """A record as it is in the topic."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    """When it was written or happened, in milliseconds since 1970; None: it has no time."""
    key: bytes | None
    value: bytes | None
    """None: a tombstone, which deletes the key in a compacted topic."""
    headers: Sequence[tuple[str, bytes | None]] = ()


class KafkaRecordDeserializationSchema(ABC):
    """Makes records of the stream out of whole records of a topic.

    ::

        class Orders(KafkaRecordDeserializationSchema):
            def deserialize(self, record):
                return record.key.decode(), json.loads(record.value)
    """

    may_skip: bool = True
    """Whether ``deserialize`` may return None."""

    @abstractmethod
    def deserialize(self, record: KafkaRecord) -> Record:
        """The record of the stream; None: there is none in it. Raises for bytes that are none."""

    def read_all(self, records: list[Any]) -> list[Record]:
        """``deserialize`` for each; called by the source."""
        return list(map(self.deserialize, records))

    def get_produced_type(self) -> TypeInformation:
        """What ``deserialize`` gives."""
        return Types.PICKLED_BYTE_ARRAY()

    def open(self) -> None:  # noqa: B027 - most need nothing
        """Called in each task before the first record."""

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Called once for each ``open``."""

    @staticmethod
    def value_only(schema: DeserializationSchema) -> "KafkaRecordDeserializationSchema":
        """Reads the value and leaves the rest; a record without a value is left out."""
        return ValueOnly(schema)


class WholeRecords(KafkaRecordDeserializationSchema):
    """Each record as a ``KafkaRecord``: key, value, headers, topic, partition, offset, time."""

    may_skip = False

    def deserialize(self, record: KafkaRecord) -> KafkaRecord:
        return record

    def read_all(self, records: list[Any]) -> list[Record]:
        return records


class ValueOnly(KafkaRecordDeserializationSchema):
    """The value, as a schema reads it."""

    def __init__(self, schema: DeserializationSchema) -> None:
        self.schema = schema
        check_settings(self, {"schema": DESERIALIZER}, "KafkaSource")
        self.may_skip = type(schema) is not SimpleStringSchema

    def deserialize(self, record: KafkaRecord) -> Record:
        return None if record.value is None else self.schema.deserialize(record.value)

    def read_all(self, records: list[Any]) -> list[Record]:
        """It is given values only; texts, the most common, are read without a call for each."""
        schema = self.schema
        if type(schema) is not SimpleStringSchema:
            return list(map(schema.deserialize, records))
        if lookup(schema.charset).name == "utf-8":  # not named, it is decoded twice as fast
            return list(map(bytes.decode, records))
        return list(map(bytes.decode, records, repeat(schema.charset)))

    def get_produced_type(self) -> TypeInformation:
        return self.schema.get_produced_type()

    def open(self) -> None:
        call_if_there(self.schema, "open")

    def close(self) -> None:
        call_if_there(self.schema, "close")


def check_schema(schema: object) -> KafkaRecordDeserializationSchema:
    """The schema that a source was given."""
    if isinstance(schema, KafkaRecordDeserializationSchema):
        return schema
    if isinstance(schema, DeserializationSchema):
        return ValueOnly(schema)
    raise PlanInvalid(
        f"KafkaSource was given the schema {schema!r}; give a DeserializationSchema for the value "
        f"or a KafkaRecordDeserializationSchema"
    )
