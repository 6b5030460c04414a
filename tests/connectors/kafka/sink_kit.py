"""What the tests of the Kafka sink share: sinks that wait little, what they write."""

from typing import Any

from headgate.base.elements import Bundle
from headgate.connectors.formats.schemas import SimpleStringSchema
from headgate.connectors.kafka.serialization import KafkaRecordSerializationSchema
from headgate.connectors.kafka.sink import KafkaSink
from headgate.core.chain.snapshots import OperatorRestored
from headgate.core.operators.sinks import TwoPhaseSinkOperator
from headgate.functions.context import SnapshotMoment
from headgate.functions.sink import DeliveryGuarantee
from tests.connectors.kafka.broker_kit import read_all, values

AT_LEAST_ONCE, EXACTLY_ONCE = DeliveryGuarantee.AT_LEAST_ONCE, DeliveryGuarantee.EXACTLY_ONCE
QUICK = {
    "reconnect.backoff.ms": "10",
    "reconnect.backoff.max.ms": "50",
    "retry.backoff.ms": "10",
    "topic.metadata.propagation.max.ms": "200",
}


def text_sink(address: str, topic: Any, *, properties: Any = None, **settings: Any) -> KafkaSink:
    """Writes texts; exactly once, unless the settings say something else."""
    settings.setdefault("guarantee", EXACTLY_ONCE)
    serializer = settings.pop("serializer", None)
    return KafkaSink(
        address,
        serializer or KafkaRecordSerializationSchema(topic, SimpleStringSchema()),
        properties={**QUICK, **(properties or {})},
        **settings,
    )


def feed(task: TwoPhaseSinkOperator, *records: Any) -> None:
    task.process(Bundle(list(records)), 0)


def take(task: TwoPhaseSinkOperator, checkpoint: int) -> bytes | None:
    """What a checkpoint holds of the sink."""
    return task.snapshot(SnapshotMoment(checkpoint, 0)).sink


def restored(*states: bytes | None) -> OperatorRestored:
    return OperatorRestored(1, sinks=tuple(state for state in states if state is not None))


def seen(address: str, topic: str, partitions: int = 1) -> list[str]:
    """What readers of committed records get, sorted: partitions have no order among them."""
    return sorted(values(read_all(address, topic, partitions=partitions)))
