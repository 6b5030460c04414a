"""Topics of Kafka as a source: one split per partition; the position is an offset.

Law: offsets are kept in the checkpoints of the job, so that each record counts once in its state;
what is committed to the group is for others to see, and is only read where a job starts afresh with
``committed_offsets``. The readers of a task share one consumer (see ``fetcher``).
"""

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import compress, repeat
from math import inf
from operator import is_
from typing import Any, Final

from headgate.base.elements import Bundle, Record
from headgate.base.errors import ConnectorError, KafkaRefused, KafkaUnready, PlanInvalid
from headgate.connectors.kafka.client import ClientBuilder, KafkaCluster
from headgate.connectors.kafka.deserialization import (
    KafkaRecord,
    KafkaRecordDeserializationSchema,
    ValueOnly,
    WholeRecords,
    check_schema,
)
from headgate.connectors.kafka.enumerator import KafkaEnumerator, KafkaSplit, KafkaTopics
from headgate.connectors.kafka.fetcher import FetchedBatch, KafkaFetcher, PartitionBuffer
from headgate.connectors.kafka.offsets import KafkaOffsetsInitializer, topic_partition
from headgate.functions.context import ConnectorContext, SnapshotMoment
from headgate.functions.source import Position, Source, SplitLag, SplitReader

COMMIT_KEY: Final = "commit.offsets.on.checkpoint"

_NOTED: Final = 64
"""Checkpoints under way whose offsets a reader keeps; more at a time are not to be expected."""
_TRIES: Final = 16
"""Batches without a record that one poll passes over."""


_NOT_THE_RECORDS: Final = (KafkaRefused, KafkaUnready)
"""What a schema raises if a registry of schemas cannot be asked: the record may be well."""


class KafkaSource(Source):
    """Records of topics; made by a builder with PyFlink's names, or in short.

    ::

        KafkaSource("broker:9092", "orders", group_id="shop", schema=SimpleStringSchema())

        KafkaSource.builder() \\
            .set_bootstrap_servers("broker:9092") \\
            .set_topics("orders") \\
            .set_value_only_deserializer(SimpleStringSchema()) \\
            .build()

    Without a schema the records are ``KafkaRecord`` with key, value, headers, topic, partition,
    offset and time. The time of a record in Kafka is its event time, unless the watermark strategy
    assigns another. ``properties`` go to librdkafka.
    """

    finds_more = True
    splits_end = False  # partitions are read side by side, also up to an end

    def __init__(
        self,
        bootstrap_servers: str,
        topics: "str | Sequence[str] | KafkaTopics",
        *,
        schema: object = None,
        group_id: str | None = None,
        start: KafkaOffsetsInitializer | None = None,
        stop: KafkaOffsetsInitializer | None = None,
        bounded: bool | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        """``stop``: partitions end there, and so does the source, unless ``bounded=False``."""
        if isinstance(topics, str):
            topics = (topics,)
        self.topics = topics if isinstance(topics, KafkaTopics) else KafkaTopics(tuple(topics))
        self.cluster = KafkaCluster("KafkaSource", bootstrap_servers, dict(properties or {}))
        self.schema = WholeRecords() if schema is None else check_schema(schema)
        self.group_id = group_id or str(self.cluster.properties.get("group.id", "")) or None
        self.start = _check_point(start or KafkaOffsetsInitializer.earliest())
        self.stop = None if stop is None else _check_point(stop)
        self.is_bounded = stop is not None if bounded is None else bounded
        for point in (self.start, self.stop):
            if point is not None and point.needs_group and self.group_id is None:
                raise PlanInvalid(
                    "KafkaSource: committed offsets are those of a group; give a group id"
                )
        if self.stop is not None and self.stop.is_earliest:
            raise PlanInvalid("KafkaSource: it would end at the earliest offset, before it begins")
        self.commits = self.cluster.flag(COMMIT_KEY, True) and self.group_id is not None
        self.create_enumerator(
            1, None
        ).close()  # a wrong property is told when the program is written

    @staticmethod
    def builder() -> "KafkaSourceBuilder":
        return KafkaSourceBuilder()

    @property
    def default_name(self) -> str:
        return f"Kafka {self.topics}"

    @property
    def bounded(self) -> bool:
        return self.is_bounded

    def get_produced_type(self) -> Any:
        """What its schema says of the records."""
        return self.schema.get_produced_type()

    def splits(self, parallelism: int) -> Sequence[KafkaSplit]:
        enumerator = self.create_enumerator(parallelism, None)
        try:
            return enumerator.discover()
        finally:
            enumerator.close()

    def create_enumerator(self, parallelism: int, position: Position) -> KafkaEnumerator:
        return KafkaEnumerator(self, position)

    def open(
        self, split: object, position: Position, context: ConnectorContext
    ) -> "KafkaSplitReader":
        assert isinstance(split, KafkaSplit), split
        assert position is None or isinstance(position, int), position
        client = _shared_client(self, context)
        try:
            return KafkaSplitReader(self, split, position, client)
        except BaseException:
            client.leave()
            raise


class KafkaSourceBuilder(ClientBuilder):
    """Gathers the settings of a source, under PyFlink's names."""

    def set_topics(self, *topics: str) -> "KafkaSourceBuilder":
        """Topics by name."""
        return self._set_topics(KafkaTopics(names=topics))

    def set_topic_pattern(self, topic_pattern: str) -> "KafkaSourceBuilder":
        """All topics whose whole name matches a regular expression, also those made later."""
        return self._set_topics(KafkaTopics(pattern=topic_pattern))

    def set_partitions(self, partitions: Any) -> "KafkaSourceBuilder":
        """Single partitions: ``{KafkaTopicPartition("orders", 0)}``."""
        pairs = frozenset(topic_partition(at, "set_partitions") for at in partitions)
        return self._set_topics(KafkaTopics(partitions=pairs))

    def set_group_id(self, group_id: str) -> "KafkaSourceBuilder":
        """The group that offsets are committed to."""
        return self._set("group_id", group_id)

    def set_client_id_prefix(self, prefix: str) -> "KafkaSourceBuilder":
        """What the names of the clients begin with, as the brokers log them."""
        return self.set_property("client.id.prefix", prefix)

    def set_starting_offsets(
        self, starting_offsets_initializer: KafkaOffsetsInitializer
    ) -> "KafkaSourceBuilder":
        """Where a job begins that is not restored; ``earliest()`` by default."""
        return self._set("start", starting_offsets_initializer)

    def set_bounded(
        self, stopping_offsets_initializer: KafkaOffsetsInitializer
    ) -> "KafkaSourceBuilder":
        """The source ends at these offsets, for instance ``latest()``; also in batch mode."""
        return self._set("stop", stopping_offsets_initializer)._set("bounded", True)

    def set_unbounded(
        self, stopping_offsets_initializer: KafkaOffsetsInitializer
    ) -> "KafkaSourceBuilder":
        """Each partition ends at these offsets, and the source goes on to look for others.

        It ends if ``partition.discovery.interval.ms`` is -1.
        """
        return self._set("stop", stopping_offsets_initializer)._set("bounded", False)

    def set_value_only_deserializer(self, deserialization_schema: Any) -> "KafkaSourceBuilder":
        """How the value becomes a record; the rest is left out."""
        return self._set("schema", ValueOnly(deserialization_schema))

    def set_deserializer(
        self, record_deserializer: KafkaRecordDeserializationSchema
    ) -> "KafkaSourceBuilder":
        """How a whole record of the topic becomes one of the stream."""
        return self._set("schema", check_schema(record_deserializer))

    def build(self) -> KafkaSource:
        if "topics" not in self._settings:
            raise PlanInvalid(
                "KafkaSource: it has nothing to read; call set_topics, set_topic_pattern or "
                "set_partitions"
            )
        servers = {"bootstrap_servers": self._properties.pop("bootstrap.servers", "")}
        return KafkaSource(**{**servers, **self._settings}, properties=self._properties)

    def _set_topics(self, topics: KafkaTopics) -> "KafkaSourceBuilder":
        if "topics" in self._settings:
            raise PlanInvalid(
                f"KafkaSource reads {self._settings['topics']} already; call one of set_topics, "
                f"set_topic_pattern and set_partitions, once"
            )
        return self._set("topics", topics)


def _check_point(point: object) -> KafkaOffsetsInitializer:
    if not isinstance(point, KafkaOffsetsInitializer):
        raise PlanInvalid(
            f"KafkaSource was given the offsets {point!r}; give a KafkaOffsetsInitializer, for "
            f"instance KafkaOffsetsInitializer.earliest()"
        )
    return point


class TaskClient:
    """What the readers of a task share: the consumer and the schema. The last reader closes it."""

    def __init__(self, source: KafkaSource, context: ConnectorContext) -> None:
        self.context = context
        self.readers = 0
        self._schema = source.schema
        task = context.task
        prefix = source.cluster.properties.get("client.id.prefix") or source.group_id or "headgate"
        self.fetcher = KafkaFetcher(
            source.cluster,
            source.group_id,
            f"{prefix}-{task.subtask}",
            finds_ends=source.stop is not None,
            whole=not isinstance(source.schema, ValueOnly),
        )
        try:
            self._schema.open()
        except BaseException:
            self.fetcher.close()
            raise

    def leave(self) -> None:
        """A reader needs it no more."""
        with _LOCK:
            self.readers -= 1
            if self.readers:
                return
            del _CLIENTS[id(self.context)]
        try:
            self.fetcher.close()
        finally:
            self._schema.close()


_LOCK: Final = threading.Lock()
_CLIENTS: Final[dict[int, TaskClient]] = {}
"""By the task's context, which the client holds, so that no other has its number."""


def _shared_client(source: KafkaSource, context: ConnectorContext) -> TaskClient:
    """The client of the task, made by its first reader."""
    with _LOCK:
        client = _CLIENTS.get(id(context))
        if client is None:
            client = _CLIENTS[id(context)] = TaskClient(source, context)
        client.readers += 1
        return client


class KafkaSplitReader(SplitReader):
    """Reads one partition from the task's consumer."""

    gives_away = True

    def __init__(
        self, source: KafkaSource, split: KafkaSplit, position: int | None, client: TaskClient
    ) -> None:
        self._split = split
        self._client = client
        self._commits = source.commits
        self._schema = source.schema
        self._offset = split.start if position is None else position
        self._noted: dict[int, int] = {}
        """The offset at each checkpoint that is under way."""
        self._buffer: PartitionBuffer = client.fetcher.add(split.where, self._offset)
        self._closed = False

    def poll(self, limit: int) -> Bundle | tuple[()] | None:
        fetcher, stop = self._client.fetcher, self._split.stop
        fetcher.start(self._client.context.wake)
        for _ in range(_TRIES):
            if stop is not None and self._offset >= stop:
                return None
            batch = fetcher.take(self._buffer, limit)
            if batch is None:
                end = self._buffer.end
                is_over = stop is not None and end is not None and end >= stop
                return None if is_over and not self._buffer.batches else ()
            self._offset = batch.next_offset
            if stop is not None and batch.next_offset > stop:
                batch = batch.before(stop)
            bundle = self._bundle(batch)
            if bundle.records:
                return bundle
        return ()

    def wait_ms(self) -> float:
        return 0.0 if self._buffer.batches else inf

    def position(self) -> int | None:
        return self._offset if self._offset >= 0 else None

    def position_at(self, moment: SnapshotMoment) -> int | None:
        if self._commits and self._offset >= 0:
            self._noted[moment.checkpoint] = self._offset
            if len(self._noted) > _NOTED:
                del self._noted[min(self._noted)]
        return self.position()

    def checkpoint_completed(self, checkpoint: int) -> None:
        offset = self._noted.get(checkpoint)
        self._noted = {noted: at for noted, at in self._noted.items() if noted > checkpoint}
        if offset is not None:
            self._client.fetcher.commit(self._split.where, offset)

    def lag(self) -> SplitLag | None:
        high, stop, batches = self._buffer.high, self._split.stop, self._buffer.batches
        if high is None or self._offset < 0:
            return None
        records = max(0, (high if stop is None else min(high, stop)) - self._offset)
        age_ms = 0.0 if not records else None
        with suppress(IndexError):  # the fetcher's thread may take it back
            written_ms = batches[0].times[0]
            if records and written_ms is not None:
                age_ms = max(0.0, float(self._client.context.now_ms() - written_ms))
        return SplitLag(records, age_ms=age_ms)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._client.fetcher.remove(self._buffer)
            self._client.leave()

    def _bundle(self, batch: FetchedBatch) -> Bundle:
        """All at once; singly only if one of them cannot be read."""
        raw, times = batch.raw, batch.times
        if batch.has_tombstones:
            raw, times = _present(raw, raw, times)
        try:
            records = self._schema.read_all(raw)
        except _NOT_THE_RECORDS:
            raise
        except Exception:  # the user's schema may raise anything
            records, times = self._singly(batch)
        if self._schema.may_skip and True in map(is_, records, repeat(None)):
            records, times = _present(records, records, times)
        return Bundle(records, times)

    def _singly(self, batch: FetchedBatch) -> tuple[list[Record], list[int | None]]:
        records: list[Record] = []
        times: list[int | None] = []
        for index, (raw, time_ms) in enumerate(zip(batch.raw, batch.times, strict=True)):
            if raw is None:
                continue
            try:
                records += self._schema.read_all([raw])
                times.append(time_ms)
            except _NOT_THE_RECORDS:
                raise
            except Exception as error:
                self._malformed(raw, batch.offset(index), error)
        return records, times

    def _malformed(self, raw: Any, offset: int, error: Exception) -> None:
        problem = ConnectorError(
            f"KafkaSource: the record at offset {offset} of {self._split.where} cannot be read: "
            f"{type(error).__name__}: {error}"
        )
        problem.__cause__ = error
        value = raw.value if isinstance(raw, KafkaRecord) else raw
        self._client.context.malformed(value, problem)


def _present(
    marks: list[Any], values: list[Any], times: list[int | None]
) -> tuple[list[Any], list[int | None]]:
    """Values and times without those whose mark is None."""
    kept = [mark is not None for mark in marks]
    return list(compress(values, kept)), list(compress(times, kept))
