"""Topics of Kafka as a sink, at least once or exactly once.

At least once, records go to the client at once, and a checkpoint waits until they are delivered.
Exactly once, they wait in the task and in its checkpoints, and are written when the checkpoint
completes, in one transaction with a note of their writer (see ``transactions``). Law: at most
``max_pending_bytes`` of records wait, which bounds memory and checkpoints.
"""

import pickle
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Final

from headgate.base.elements import Record
from headgate.base.errors import ConnectorError, PlanInvalid
from headgate.connectors.kafka.client import KafkaCluster
from headgate.connectors.kafka.producer import MESSAGE_BYTES, MESSAGE_KEY, SinkProducer
from headgate.connectors.kafka.progress import ProgressTopic, progress_record
from headgate.connectors.kafka.record_maker import RecordMaker
from headgate.connectors.kafka.serialization import (
    KafkaRecordSerializationSchema,
    ProducerRecord,
)
from headgate.connectors.kafka.transactions import KafkaCommit, KafkaCommitter
from headgate.functions.context import ConnectorContext, SnapshotMoment
from headgate.functions.sink import (
    CommittingSinkWriter,
    DeliveryGuarantee,
    TwoPhaseCommittingSink,
)

BATCH_RECORDS: Final = 1000
"""Records that are pickled together."""
PENDING_BYTES: Final = 256 << 20
PREFIX: Final = "headgate"
PROGRESS_TOPIC: Final = "headgate-progress"
_RESERVED: Final = {
    "transactional.id": "set_transactional_id_prefix",
    "bootstrap.servers": "set_bootstrap_servers",
}


class KafkaSink(TwoPhaseCommittingSink):
    """Records to topics; made by a builder with PyFlink's names, or in short.

    ::

        KafkaSink("broker:9092", KafkaRecordSerializationSchema("orders", SimpleStringSchema()))

        KafkaSink.builder() \\
            .set_bootstrap_servers("broker:9092") \\
            .set_record_serializer(
                KafkaRecordSerializationSchema.builder()
                .set_topic("orders")
                .set_value_serialization_schema(SimpleStringSchema())
                .build()
            ) \\
            .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE) \\
            .build()

    ``properties`` go to librdkafka. Exactly once, ``progress_topic`` notes what was written; the
    sink makes it if it is missing.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        serializer: KafkaRecordSerializationSchema,
        *,
        guarantee: DeliveryGuarantee = DeliveryGuarantee.AT_LEAST_ONCE,
        transactional_id_prefix: str = PREFIX,
        progress_topic: str = PROGRESS_TOPIC,
        max_pending_bytes: int = PENDING_BYTES,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(serializer, KafkaRecordSerializationSchema):
            raise PlanInvalid(
                f"KafkaSink was given the record serializer {serializer!r}; make one with "
                f"KafkaRecordSerializationSchema.builder()"
            )
        if not isinstance(guarantee, DeliveryGuarantee):
            raise PlanInvalid(
                f"KafkaSink was given the guarantee {guarantee!r}; give one of DeliveryGuarantee"
            )
        for name, value in (
            ("the transactional id prefix", transactional_id_prefix),
            ("the progress topic", progress_topic),
        ):
            if not re.fullmatch(r"[\w.-]{1,100}", str(value), re.ASCII):
                raise PlanInvalid(
                    f"KafkaSink: {name} is {value!r}; give up to 100 letters, digits, . _ or -"
                )
        if type(max_pending_bytes) is not int or max_pending_bytes < 1:
            raise PlanInvalid(
                f"KafkaSink: max_pending_bytes is {max_pending_bytes!r}; give a number above 0"
            )
        for key in properties or ():
            if key in _RESERVED:
                raise PlanInvalid(f"KafkaSink: {key} is set by {_RESERVED[key]}, not as a property")
        self.cluster = KafkaCluster("KafkaSink", bootstrap_servers, dict(properties or {}))
        self.serializer = serializer
        self.guarantee = guarantee
        self.transactional_id_prefix = transactional_id_prefix
        self.progress_topic = progress_topic
        self.max_pending_bytes = max_pending_bytes

    @staticmethod
    def builder() -> "KafkaSinkBuilder":
        return KafkaSinkBuilder()

    @property
    def default_name(self) -> str:
        return f"Kafka {self.serializer.fixed_topic or 'topics'}"

    def create_writer(self, context: ConnectorContext) -> CommittingSinkWriter:
        if self.guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            return StagingWriter(self, context)
        return DeliveringWriter(self, context)

    def create_committer(self, context: ConnectorContext) -> KafkaCommitter:
        return KafkaCommitter(self.cluster, _whose(context), _details(context), context.sleep)


class KafkaSinkBuilder:
    """Gathers the settings of a sink, under PyFlink's names."""

    def __init__(self) -> None:
        self._servers = ""
        self._serializer: Any = None
        self._settings: dict[str, Any] = {}
        self._properties: dict[str, Any] = {}

    def set_bootstrap_servers(self, bootstrap_servers: str) -> "KafkaSinkBuilder":
        """Where brokers are found: ``host:port``, several with commas between them."""
        self._servers = bootstrap_servers
        return self

    def set_record_serializer(
        self, record_serializer: KafkaRecordSerializationSchema
    ) -> "KafkaSinkBuilder":
        """Topic, key, value and more of each record."""
        self._serializer = record_serializer
        return self

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> "KafkaSinkBuilder":
        """``AT_LEAST_ONCE`` by default."""
        self._settings["guarantee"] = delivery_guarantee
        return self

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> "KafkaSinkBuilder":
        """What the sink's transactional ids begin with, as access rights of brokers need it."""
        self._settings["transactional_id_prefix"] = transactional_id_prefix
        return self

    def set_progress_topic(self, topic: str) -> "KafkaSinkBuilder":
        """The compacted topic that notes what was written exactly once."""
        self._settings["progress_topic"] = topic
        return self

    def set_max_pending_bytes(self, max_pending_bytes: int) -> "KafkaSinkBuilder":
        """So many bytes of records may wait for a checkpoint in each task, exactly once."""
        self._settings["max_pending_bytes"] = max_pending_bytes
        return self

    def set_property(self, key: str, value: str) -> "KafkaSinkBuilder":
        """A property of the client, by librdkafka's name."""
        self._properties[key] = value
        return self

    def set_properties(self, props: Mapping[str, str]) -> "KafkaSinkBuilder":
        """Several of them."""
        self._properties.update(props)
        return self

    def build(self) -> KafkaSink:
        if self._serializer is None:
            raise PlanInvalid("KafkaSink: call set_record_serializer(...) before build()")
        return KafkaSink(
            self._servers, self._serializer, properties=self._properties, **self._settings
        )


class DeliveringWriter(CommittingSinkWriter):
    """Hands records to the client at once; has nothing to commit later."""

    def __init__(self, sink: KafkaSink, context: ConnectorContext) -> None:
        self._serializer = sink.serializer
        self._waits = sink.guarantee is DeliveryGuarantee.AT_LEAST_ONCE
        self._producer = SinkProducer(sink.cluster, _whose(context), sleep=context.sleep)
        try:
            if sink.serializer.fixed_topic is not None:
                self._producer.find_topic(sink.serializer.fixed_topic)
            self._maker = _maker(sink, context, self._producer)
            sink.serializer.open()
        except BaseException:
            self._producer.close()
            raise

    def write(self, records: list[Record]) -> None:
        self._producer.send(self._maker.make(records))

    def flush(self) -> None:
        if self._waits:
            self._producer.flush()

    def prepare_commit(self, moment: SnapshotMoment | None) -> Sequence[Record]:
        if moment is None:
            self._producer.flush()
        return ()

    def close(self) -> None:
        self._producer.close()
        self._serializer.close()


class StagingWriter(CommittingSinkWriter):
    """Keeps records as bytes until a checkpoint takes them."""

    def __init__(self, sink: KafkaSink, context: ConnectorContext) -> None:
        task = context.task
        self._whose = _whose(context)
        self._serializer = sink.serializer
        self._limit = sink.max_pending_bytes
        self._records: list[ProducerRecord] = []
        self._batches: list[bytes] = []
        self._bytes = 0
        self._number = 0
        self._writer = secrets.token_hex(8)
        parts = (
            sink.transactional_id_prefix,
            task.job_id or task.job,
            context.uid or context.operator,
            str(task.subtask),
            self._writer,
        )
        self._id = "-".join(re.sub(r"[^\w.-]", "_", part, flags=re.ASCII)[:100] for part in parts)
        self._topic = sink.progress_topic
        self._client = SinkProducer(sink.cluster, self._whose, sleep=context.sleep)
        try:
            with closing(
                ProgressTopic(sink.cluster, sink.progress_topic, self._whose, context.sleep)
            ) as progress:
                progress.make()  # what is wrong with the brokers is told at the start
                self._since = progress.ends()
            self._client.send(
                [progress_record(self._topic, len(self._since), self._writer, 0, _details(context))]
            )
            self._client.flush()  # from here on its notes are missed if they are gone
            if sink.serializer.fixed_topic is not None:
                self._client.find_topic(sink.serializer.fixed_topic)
            self._maker = _maker(sink, context, self._client)
            sink.serializer.open()
        except BaseException:
            self._client.close()
            raise

    def write(self, records: list[Record]) -> None:
        self._records += self._maker.make(records)
        if len(self._records) >= BATCH_RECORDS:
            self.flush()

    def flush(self) -> None:
        records, self._records = self._records, []
        for start in range(0, len(records), BATCH_RECORDS):
            self._stage(records[start : start + BATCH_RECORDS])

    def prepare_commit(self, moment: SnapshotMoment | None) -> Sequence[KafkaCommit]:
        if not self._batches:
            return ()
        self._number += 1
        batches, self._batches, self._bytes = tuple(self._batches), [], 0
        return [
            KafkaCommit(self._writer, self._number, self._id, self._topic, self._since, batches)
        ]

    def close(self) -> None:
        self._client.close()
        self._serializer.close()

    def _stage(self, records: list[ProducerRecord]) -> None:
        batch = pickle.dumps(records, 5)
        self._bytes += len(batch)
        if self._bytes > self._limit:
            raise ConnectorError(
                f"{self._whose}: records of more than {self._limit} bytes wait for the next "
                f"checkpoint; take checkpoints more often (execution.checkpointing.interval), "
                f"raise set_max_pending_bytes, or use DeliveryGuarantee.AT_LEAST_ONCE"
            )
        self._batches.append(batch)


def _maker(sink: KafkaSink, context: ConnectorContext, client: SinkProducer) -> RecordMaker:
    largest = sink.cluster.whole_number(MESSAGE_KEY, MESSAGE_BYTES, least=1)
    return RecordMaker(
        sink.serializer, largest, _whose(context), context.malformed, client.find_topic
    )


def _details(context: ConnectorContext) -> dict[str, Any]:
    """What is noted with the progress, for people."""
    task = context.task
    return {
        "job": task.job,
        "operator": context.uid or context.operator,
        "subtask": task.subtask,
    }


def _whose(context: ConnectorContext) -> str:
    return f"sink {context.operator!r} ({context.task.name})"
