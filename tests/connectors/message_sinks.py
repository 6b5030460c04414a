"""Sinks of a job with a real driver: a topic and streams, exactly once; see ``driver_kit``."""

import confluent_kafka
import nats
import redis

from headgate.base.elements import Record
from headgate.connectors.formats.schemas import SerializationSchema
from headgate.connectors.kafka.serialization import KafkaRecordSerializationSchema
from headgate.connectors.nats.sink import NatsSink
from headgate.connectors.redis.sink import RedisStreamSink
from headgate.functions.sink import DeliveryGuarantee, TwoPhaseCommittingSink
from tests.connectors.kafka.sink_kit import text_sink

CLIENTS = (confluent_kafka, nats, redis)
"""Loaded once, for all drivers."""
ONCE = DeliveryGuarantee.EXACTLY_ONCE


class NumberSchema(SerializationSchema):
    """The first field of each record."""

    def serialize(self, value: Record) -> bytes:
        return str(value[0]).encode()


def make_sinks(places: dict[str, str]) -> dict[str, TwoPhaseCommittingSink]:
    """Into the topic and the streams ``numbers`` of these servers."""
    numbers = NumberSchema()
    serializer = KafkaRecordSerializationSchema("numbers", numbers)
    return {
        "kafka": text_sink(places["kafka"], "numbers", serializer=serializer),
        "nats": NatsSink(places["nats"], "numbers.new", numbers, guarantee=ONCE),
        "redis": RedisStreamSink(places["redis"], "numbers", schema=numbers, guarantee=ONCE),
    }
