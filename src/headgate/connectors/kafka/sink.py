"""Topics of Kafka as a sink, at least once or exactly once.

At least once, records go to the client at once, and a checkpoint waits until they are delivered.
Exactly once, they wait in the task and in its checkpoints, and are written when the checkpoint
completes, in one transaction with a note of their writer (see ``transactions``). Law: at most
``max_pending_bytes`` of records wait; a record that gets through ``RecordMaker`` can be written, as
far as that can be known before it is, so no checkpoint holds one that fails every commit. Records
that cannot be made, or that the client would refuse, go to the error policy of the operator.
"""

import re
import secrets
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from typing import Any, Final

from headgate.base.elements import Record
from headgate.base.errors import ConnectorError, PlanInvalid, shown
from headgate.connectors.checks import COUNT, GUARANTEE, check_settings, instance, matching
from headgate.connectors.kafka.client import ClientBuilder, KafkaCluster
from headgate.connectors.kafka.producer import MESSAGE_BYTES, MESSAGE_KEY, SinkProducer, too_large
from headgate.connectors.kafka.serialization import (
    ANY_PARTITION,
    NOW,
    KafkaRecordSerializationSchema,
    ProducerRecord,
)
from headgate.connectors.kafka.transactions import (
    KafkaCommit,
    KafkaCommitter,
    ProgressTopic,
    progress_record,
)
from headgate.connectors.staged import (
    PENDING_BYTES,
    DirectWriter,
    Staged,
    StagingWriter,
    whose,
)
from headgate.functions.context import ConnectorContext
from headgate.functions.sink import (
    CommittingSinkWriter,
    DeliveryGuarantee,
    TwoPhaseCommittingSink,
)

OVERHEAD: Final = 100
"""Bytes of a record beside key, value and headers, and more than that."""
HEADER_OVERHEAD: Final = 20
LAST_TIME: Final = 1 << 63
_BYTES: Final = frozenset({bytes})
_TEXTS: Final = (bytes, str, type(None))


class RecordMaker:
    """What the client is given for the records of the stream."""

    def __init__(
        self,
        serializer: KafkaRecordSerializationSchema,
        largest: int,
        whose: str,
        malformed: Callable[[object, Exception], None],
        partitions_of: Callable[[str], int],
    ) -> None:
        """``largest``: bytes of a record that the client takes; ``malformed``: see
        ``ConnectorContext``; ``partitions_of`` raises for a topic that does not exist.
        """
        self._make = serializer.function()
        self._is_short = not serializer.has_details
        self._has_key = serializer.key is not None
        self._is_fixed = serializer.fixed_topic is not None
        self._largest = largest
        self._whose = whose
        self._malformed = malformed
        self._partitions_of = partitions_of
        self._known: dict[str, int] = {}

    def make(self, records: list[Record]) -> list[ProducerRecord]:
        """What the client is given for the records that can be written, in order."""
        try:
            made = list(map(self._make, records))
        except Exception:  # each alone, to learn which one it is
            return self._each(records)
        if self._all_fit(made):
            return made
        checked = zip(records, made, strict=True)
        return [found for record, found in checked if self._fits(record, found)]

    def _all_fit(self, made: list[ProducerRecord]) -> bool:
        """Whether a quick look is enough to see that all can be written."""
        if not self._is_short or not made:
            return False
        if not self._is_fixed and not self._known.keys() >= {record[0] for record in made}:
            return False
        size = 0
        for part in (1, 2) if self._has_key else (1,):
            values = [record[part] for record in made]
            if not _BYTES.issuperset(map(type, values)):
                return False
            size += sum(map(len, values))
        return size + OVERHEAD <= self._largest or self._none_is_large(made)

    def _none_is_large(self, made: list[ProducerRecord]) -> bool:
        room = self._largest - OVERHEAD
        return all(sum(map(len, record[1:])) <= room for record in made)

    def _each(self, records: list[Record]) -> list[ProducerRecord]:
        made: list[ProducerRecord] = []
        for record in records:
            try:
                found = self._make(record)
            except ConnectorError:  # a registry that is away is no fault of the record
                raise
            except Exception as error:
                self._malformed(record, error)
                continue
            if self._fits(record, found):
                made.append(found)
        return made

    def _fits(self, record: Record, made: ProducerRecord) -> bool:
        """Whether it can be written; if not, the policy has let it go."""
        problem = self._problem(*made)
        if problem is not None:
            self._malformed(record, problem)
        return problem is None

    def _problem(
        self,
        topic: Any,
        value: Any,
        key: Any = None,
        partition: Any = ANY_PARTITION,
        _callback: None = None,
        _on_delivery: None = None,
        timestamp: Any = NOW,
        headers: Any = None,
    ) -> ConnectorError | None:
        """Why a record cannot be written; None: it can."""
        if not isinstance(topic, str) or not topic:
            return self._unfit(topic, "the topic", topic)
        for name, part in (("the value", value), ("the key", key)):
            if not isinstance(part, _TEXTS):
                return self._unfit(topic, name, part)
        if type(timestamp) is not int or not 0 <= timestamp < LAST_TIME:
            return self._unfit(topic, "the time", timestamp)
        if type(partition) is not int or not self._has_partition(topic, partition):
            return self._unfit(topic, "the partition", partition)
        size = OVERHEAD + _size(value) + _size(key)
        for header in headers or ():
            if not _is_header(header):
                return self._unfit(topic, "a header", header)
            size += HEADER_OVERHEAD + _size(header[0]) + _size(header[1])
        if size > self._largest:
            limit = f"about {size} bytes, and message.max.bytes is {self._largest}"
            return too_large(self._whose, f"topic {topic!r}", limit)
        return None

    def _has_partition(self, topic: str, partition: int) -> bool:
        """Also of a topic that has grown since it was last looked at."""
        if topic not in self._known or partition >= self._known[topic]:
            self._known[topic] = self._partitions_of(topic)
        return ANY_PARTITION <= partition < self._known[topic]

    def _unfit(self, topic: object, part: str, found: object) -> ConnectorError:
        return ConnectorError(
            f"{self._whose}: a record for topic {topic!r} cannot be written: {part} is "
            f"{shown(found)}; give bytes as key and value, the name of a topic, the number of one "
            f"of its partitions, milliseconds as time, and pairs of text and bytes as headers"
        )


def _size(part: str | bytes | None) -> int:
    if part is None:
        return 0
    return len(part.encode()) if isinstance(part, str) else len(part)


def _is_header(header: object) -> bool:
    if not isinstance(header, tuple | list) or len(header) != 2:
        return False
    return isinstance(header[0], str) and isinstance(header[1], _TEXTS)


PREFIX: Final = "headgate"
PROGRESS_TOPIC: Final = "headgate-progress"
_RESERVED: Final = {
    "transactional.id": "set_transactional_id_prefix",
    "bootstrap.servers": "set_bootstrap_servers",
}
_NAME: Final = matching(r"[\w.-]{1,100}", "up to 100 letters, digits, . _ or -")
CHECKS: Final = {
    "serializer": instance(
        KafkaRecordSerializationSchema,
        "a record serializer, made with KafkaRecordSerializationSchema.builder()",
    ),
    "guarantee": GUARANTEE,
    "transactional_id_prefix": _NAME,
    "progress_topic": _NAME,
    "max_pending_bytes": COUNT,
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
        for key in properties or ():
            if key in _RESERVED:
                raise PlanInvalid(f"KafkaSink: {key} is set by {_RESERVED[key]}, not as a property")
        self.cluster = KafkaCluster("KafkaSink", bootstrap_servers, dict(properties or {}))
        self.serializer = serializer
        self.guarantee = guarantee
        self.transactional_id_prefix = transactional_id_prefix
        self.progress_topic = progress_topic
        self.max_pending_bytes = max_pending_bytes
        check_settings(self, CHECKS)

    @staticmethod
    def builder() -> "KafkaSinkBuilder":
        return KafkaSinkBuilder()

    @property
    def default_name(self) -> str:
        return f"Kafka {self.serializer.fixed_topic or 'topics'}"

    def create_writer(self, context: ConnectorContext) -> CommittingSinkWriter:
        is_once = self.guarantee is DeliveryGuarantee.EXACTLY_ONCE
        waits = self.guarantee is DeliveryGuarantee.AT_LEAST_ONCE
        writer = secrets.token_hex(8)
        with ExitStack() as opened:
            client = SinkProducer(self.cluster, whose(context), sleep=context.sleep)
            opened.callback(client.close)
            lot = self._begin(context, client, writer) if is_once else None
            if self.serializer.fixed_topic is not None:
                client.find_topic(self.serializer.fixed_topic)
            make = self._maker(context, client).make
            self.serializer.open()
            opened.callback(self.serializer.close)
            if lot is not None:
                return StagingWriter(
                    make,
                    context,
                    self.max_pending_bytes,
                    lot=lot,
                    writer=writer,
                    advice="raise set_max_pending_bytes, or use DeliveryGuarantee.AT_LEAST_ONCE",
                    close=opened.pop_all().close,
                )
            return DirectWriter(
                make,
                client.send,
                opened.pop_all().close,
                wait=client.flush if waits else lambda: None,
                wait_at_end=client.flush,
            )

    def create_committer(self, context: ConnectorContext) -> KafkaCommitter:
        return KafkaCommitter(self.cluster, whose(context), _details(context), context.sleep)

    def _begin(
        self, context: ConnectorContext, client: SinkProducer, writer: str
    ) -> Callable[[Staged], KafkaCommit]:
        """Note the beginning of a writer; what makes its lots."""
        task, topic = context.task, self.progress_topic
        parts = (
            self.transactional_id_prefix,
            task.job_id or task.job,
            context.uid or context.operator,
            str(task.subtask),
            writer,
        )
        identity = "-".join(re.sub(r"[^\w.-]", "_", part, flags=re.ASCII)[:100] for part in parts)
        with closing(ProgressTopic(self.cluster, topic, whose(context), context.sleep)) as progress:
            progress.make()  # what is wrong with the brokers is told at the start
            since = progress.ends()
        client.send([progress_record(topic, len(since), writer, 0, _details(context))])
        client.flush()  # from here on its notes are missed if they are gone
        return lambda staged: KafkaCommit(
            writer, staged.number, identity, topic, since, staged.batches
        )

    def _maker(self, context: ConnectorContext, client: SinkProducer) -> RecordMaker:
        largest = self.cluster.whole_number(MESSAGE_KEY, MESSAGE_BYTES, least=1)
        return RecordMaker(
            self.serializer, largest, whose(context), context.malformed, client.find_topic
        )


class KafkaSinkBuilder(ClientBuilder):
    """Gathers the settings of a sink, under PyFlink's names."""

    def set_record_serializer(
        self, record_serializer: KafkaRecordSerializationSchema
    ) -> "KafkaSinkBuilder":
        """Topic, key, value and more of each record."""
        return self._set("serializer", record_serializer)

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> "KafkaSinkBuilder":
        """``AT_LEAST_ONCE`` by default."""
        return self._set("guarantee", delivery_guarantee)

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> "KafkaSinkBuilder":
        """What the sink's transactional ids begin with, as access rights of brokers need it."""
        return self._set("transactional_id_prefix", transactional_id_prefix)

    def set_progress_topic(self, topic: str) -> "KafkaSinkBuilder":
        """The compacted topic that notes what was written exactly once."""
        return self._set("progress_topic", topic)

    def set_max_pending_bytes(self, max_pending_bytes: int) -> "KafkaSinkBuilder":
        """So many bytes of records may wait for a checkpoint in each task, exactly once."""
        return self._set("max_pending_bytes", max_pending_bytes)

    def build(self) -> KafkaSink:
        if self._settings.get("serializer") is None:
            raise PlanInvalid("KafkaSink: call set_record_serializer(...) before build()")
        settings = {"bootstrap_servers": "", **self._settings}
        return KafkaSink(**settings, properties=self._properties)


def _details(context: ConnectorContext) -> dict[str, Any]:
    """What is noted with the progress, for people."""
    task = context.task
    return {
        "job": task.job,
        "operator": context.uid or context.operator,
        "subtask": task.subtask,
    }
