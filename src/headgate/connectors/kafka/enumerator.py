"""Finds the partitions that a Kafka source reads, in the driver, and where each begins and ends.

Law: a partition is found once. Those that are there at the start begin where the program says; one
that comes later begins at its first record, or records written before it was found would be lost.
"""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from headgate.base.errors import KafkaRefused, PlanInvalid
from headgate.connectors.kafka.client import ClientWatch, kafka
from headgate.connectors.kafka.fetcher import create_consumer
from headgate.connectors.kafka.offsets import (
    BEGINNING,
    KafkaTopicPartition,
    OffsetQuestions,
    shown,
)
from headgate.functions.source import SplitEnumerator

if TYPE_CHECKING:
    from headgate.connectors.kafka.source import KafkaSource

INTERVAL_KEY: Final = "partition.discovery.interval.ms"
INTERVAL_MS: Final = 300_000

PATIENCE_S: Final = 0.5
"""For so long an answer is awaited before the client is asked whether to wait makes sense."""

_INTERNAL: Final = "__"
"""What the names of Kafka's own topics begin with; a pattern does not match them."""


@dataclass(frozen=True)
class KafkaSplit:
    """A partition, and where reading begins and ends."""

    topic: str
    partition: int
    start: int
    """An offset, or ``BEGINNING``."""
    stop: int | None = None
    """The first offset that is not read; None: it has no end."""

    @property
    def where(self) -> KafkaTopicPartition:
        return KafkaTopicPartition(self.topic, self.partition)


@dataclass(frozen=True)
class KafkaTopics:
    """What to read: topics by name or by pattern, or single partitions."""

    names: tuple[str, ...] = ()
    pattern: str = ""
    partitions: frozenset[KafkaTopicPartition] = field(default_factory=frozenset)

    def __post_init__(self) -> None:
        if sum(map(bool, (self.names, self.pattern, self.partitions))) != 1:
            raise PlanInvalid(
                "KafkaSource: give exactly one of topics, a pattern of topics, or partitions"
            )
        for name in self.names:
            if not str(name or ""):
                raise PlanInvalid(f"KafkaSource was given the topic {name!r}; give its name")
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise PlanInvalid(
                f"KafkaSource: the pattern {self.pattern!r} is no regular expression: {error}"
            ) from None

    def __str__(self) -> str:
        if self.pattern:
            return self.pattern
        names = self.names or tuple(map(str, sorted(self.partitions)))
        return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


class KafkaEnumerator(SplitEnumerator):
    """Asks the brokers for partitions, at first and then at intervals."""

    def __init__(self, source: "KafkaSource", position: object) -> None:
        cluster = self._cluster = source.cluster
        self._topics = source.topics
        self._group = source.group_id
        self._start = source.start
        self._stop = source.stop
        self._is_first = position is None
        self._known: set[KafkaTopicPartition] = set()
        for topic, partition in cast("Sequence[tuple[str, int]]", position or ()):
            self._known.add(KafkaTopicPartition(topic, partition))
        self._watch = ClientWatch(f"{cluster.user} {self._topics}")
        self._consumer: Any = None
        interval_ms = cluster.whole_number(INTERVAL_KEY, INTERVAL_MS, least=-1)
        self.interval_ms = interval_ms if interval_ms > 0 and not source.bounded else None

    def discover(self) -> Sequence[KafkaSplit]:
        """The partitions that are new."""
        if self._consumer is None:
            self._consumer = create_consumer(self._cluster, self._watch, self._group, {})
        found = sorted(self._found())
        new = [partition for partition in found if partition not in self._known]
        if not found and self.interval_ms is None:
            raise KafkaRefused(
                f"{self._cluster.user}: no topic of {self._cluster.servers} matches "
                f"{self._topics.pattern!r}, and the source does not look again"
            )
        gone = sorted(self._known.difference(found))
        if gone:
            self._watch.log(
                logging.WARNING,
                "%s is not there any more; nothing is read of it until it is back",
                shown(gone),
            )
        questions = OffsetQuestions(self._cluster, self._consumer, self._watch)
        if self._is_first:
            starts = questions.resolve(self._start, new)
        else:
            starts = dict.fromkeys(new, BEGINNING)
        stops = questions.resolve(self._stop, new) if self._stop is not None else {}
        self._is_first = False
        self._known.update(new)
        return [KafkaSplit(at.topic, at.partition, starts[at], stops.get(at)) for at in new]

    def position(self) -> object:
        """The partitions that were found, as pairs."""
        if self._is_first:
            return None
        return [(topic, partition) for topic, partition in sorted(self._known)]

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _found(self) -> set[KafkaTopicPartition]:
        topics = self._topics
        if topics.pattern:
            matches = re.compile(topics.pattern).fullmatch
            counts = self._partition_counts(None)
            names = [name for name in counts if matches(name) and not name.startswith(_INTERNAL)]
            return {at for name in names for at in _partitions(name, counts[name])}
        names = sorted(set(topics.names) | {at.topic for at in topics.partitions})
        found = {
            at for name in names for at in _partitions(name, self._partition_counts(name)[name])
        }
        if not topics.partitions:
            return found
        missing = sorted(topics.partitions - found)
        if missing:
            raise KafkaRefused(
                f"{self._cluster.user}: {self._cluster.servers} has no partition {shown(missing)}; "
                f"correct set_partitions, or add partitions to the topic"
            )
        return set(topics.partitions)

    def _partition_counts(self, topic: str | None) -> dict[str, int]:
        """How many partitions each topic has, or only this one."""
        client = kafka(self._cluster.user)
        doing = "looking for topics" if topic is None else f"looking for topic {topic!r}"
        try:
            answer = self._ask_for_topics(topic)
        except client.KafkaException as error:
            raise self._cluster.problem(error, doing, self._watch) from error
        counts = {}
        for name, found in answer.topics.items():
            if found.error is not None and topic is not None:
                raise self._cluster.problem(found.error, doing, self._watch)
            counts[name] = len(found.partitions)
        return counts

    def _ask_for_topics(self, topic: str | None) -> Any:
        """Wrong credentials are told at once; everything else may pass until the time is up."""
        self._watch.refused = None  # an earlier question may have found another password
        left_s, patience_s = self._cluster.timeout_s, PATIENCE_S
        asked = () if topic is None else (topic,)
        while True:
            try:
                return self._consumer.list_topics(*asked, timeout=min(left_s, patience_s))
            except kafka(self._cluster.user).KafkaException:
                self._consumer.poll(0)  # error_cb is called by it
                left_s -= patience_s
                patience_s *= 2  # an answer may be long
                if left_s <= 0 or self._watch.refused is not None:
                    raise


def _partitions(topic: str, count: int) -> list[KafkaTopicPartition]:
    return [KafkaTopicPartition(topic, number) for number in range(count)]
