"""Where reading begins and ends in the partitions of a topic, under PyFlink's names.

``KafkaOffsetsInitializer`` is what a program writes; ``OffsetQuestions`` turns it into offsets by
asking the brokers, in the driver. Law: what is answered with an offset stays that offset, however
often the job is restarted; only "from the beginning" stays a word, since the beginning moves.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from headgate.base.errors import OffsetsLost, PlanInvalid
from headgate.connectors.kafka.client import ClientWatch, KafkaCluster
from headgate.connectors.libraries import library

BEGINNING: Final = -2
"""In place of an offset: the first record that there is."""


class KafkaTopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class KafkaOffsetResetStrategy(Enum):
    """What counts where a group has committed nothing, or no offset was given."""

    LATEST = 0
    EARLIEST = 1
    NONE = 2
    """An error."""


class _Point(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"
    TIMESTAMP = "timestamp"
    OFFSETS = "offsets"


@dataclass(frozen=True)
class KafkaOffsetsInitializer:
    """Where to begin, or to end: made by its static methods."""

    point: _Point
    timestamp_ms: int = 0
    given: Mapping[KafkaTopicPartition, int] | None = None
    reset: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE

    @staticmethod
    def earliest() -> "KafkaOffsetsInitializer":
        """The first record that each partition still has."""
        return KafkaOffsetsInitializer(_Point.EARLIEST)

    @staticmethod
    def latest() -> "KafkaOffsetsInitializer":
        """After the last record that each partition has when the job starts."""
        return KafkaOffsetsInitializer(_Point.LATEST)

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> "KafkaOffsetsInitializer":
        """Where the group has left off; where it has not, what the strategy says."""
        reset = _check_reset(offset_reset_strategy, "committed_offsets")
        return KafkaOffsetsInitializer(_Point.COMMITTED, reset=reset)

    @staticmethod
    def timestamp(timestamp: int) -> "KafkaOffsetsInitializer":
        """The first record written at this time (milliseconds since 1970) or later."""
        if type(timestamp) is not int or timestamp < 0:
            raise PlanInvalid(
                f"KafkaOffsetsInitializer.timestamp was given {timestamp!r}; give milliseconds "
                f"since 1970"
            )
        return KafkaOffsetsInitializer(_Point.TIMESTAMP, timestamp)

    @staticmethod
    def offsets(
        offsets: Mapping[Any, int],
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> "KafkaOffsetsInitializer":
        """An offset for each partition, ``{("orders", 0): 17}``; for others the strategy counts."""
        given = {}
        for key, offset in offsets.items():
            if type(offset) is not int or offset < 0:
                raise PlanInvalid(
                    f"KafkaOffsetsInitializer.offsets was given {offset!r} for {key!r}; give "
                    f"whole numbers from 0 on"
                )
            given[topic_partition(key, "KafkaOffsetsInitializer.offsets")] = offset
        reset = _check_reset(offset_reset_strategy, "offsets")
        return KafkaOffsetsInitializer(_Point.OFFSETS, given=given, reset=reset)

    @property
    def needs_group(self) -> bool:
        """Whether it asks what a group has committed."""
        return self.point is _Point.COMMITTED

    @property
    def is_earliest(self) -> bool:
        return self.point is _Point.EARLIEST


def topic_partition(value: Any, where: str) -> KafkaTopicPartition:
    """A pair as users write it: ours, a tuple, or confluent-kafka's TopicPartition."""
    topic, partition = getattr(value, "topic", None), getattr(value, "partition", None)
    if isinstance(value, tuple) and len(value) == 2:
        topic, partition = value
    if not isinstance(topic, str) or type(partition) is not int or not topic or partition < 0:
        raise PlanInvalid(
            f"{where} was given the partition {value!r}; give the topic and the partition's "
            f'number, ("orders", 0)'
        )
    return KafkaTopicPartition(topic, partition)


def _check_reset(strategy: object, method: str) -> KafkaOffsetResetStrategy:
    if not isinstance(strategy, KafkaOffsetResetStrategy):
        raise PlanInvalid(
            f"KafkaOffsetsInitializer.{method} was given the strategy {strategy!r}; give one of "
            f"KafkaOffsetResetStrategy"
        )
    return strategy


class OffsetQuestions:
    """Asks the brokers for offsets; blocks for as long as the cluster's timeout says."""

    def __init__(self, cluster: KafkaCluster, consumer: Any, watch: ClientWatch) -> None:
        """``consumer`` is a client that reads nothing; whoever made it closes it."""
        self._cluster = cluster
        self._consumer = consumer
        self._watch = watch

    def resolve(
        self, point: KafkaOffsetsInitializer, partitions: Sequence[KafkaTopicPartition]
    ) -> dict[KafkaTopicPartition, int]:
        """An offset, or ``BEGINNING``, for each partition."""
        if point.point is _Point.EARLIEST:
            return dict.fromkeys(partitions, BEGINNING)
        if point.point is _Point.LATEST:
            return self._ends(partitions)
        if point.point is _Point.TIMESTAMP:
            return self._at_time(partitions, point.timestamp_ms)
        found = self._committed(partitions) if point.needs_group else dict(point.given or {})
        missing = [partition for partition in partitions if partition not in found]
        found |= self._reset(missing, point)
        return {partition: found[partition] for partition in partitions}

    def _reset(
        self, missing: list[KafkaTopicPartition], point: KafkaOffsetsInitializer
    ) -> dict[KafkaTopicPartition, int]:
        match point.reset:
            case KafkaOffsetResetStrategy.EARLIEST:
                return dict.fromkeys(missing, BEGINNING)
            case KafkaOffsetResetStrategy.LATEST:
                return self._ends(missing)
            case KafkaOffsetResetStrategy.NONE:
                if not missing:
                    return {}
        what = "the group has committed no offset" if point.needs_group else "no offset was given"
        raise OffsetsLost(
            f"{self._cluster.user}: {what} for {shown(missing)}; "
            f"give KafkaOffsetResetStrategy.EARLIEST or LATEST as well"
        )

    def _ends(self, partitions: Iterable[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        return self._at_time(partitions, -1)

    def _at_time(
        self, partitions: Iterable[KafkaTopicPartition], timestamp_ms: int
    ) -> dict[KafkaTopicPartition, int]:
        """Kafka answers -1 for the time with the end, and with -1 for a time after the end."""
        found = self._asked("offsets_for_times", partitions, timestamp_ms)
        beyond = [partition for partition, offset in found.items() if offset < 0]
        if beyond and timestamp_ms != -1:
            found |= self._ends(beyond)
        return found

    def _committed(
        self, partitions: Iterable[KafkaTopicPartition]
    ) -> dict[KafkaTopicPartition, int]:
        found = self._asked("committed", partitions, -1)
        return {partition: offset for partition, offset in found.items() if offset >= 0}

    def _asked(
        self, method: str, partitions: Iterable[KafkaTopicPartition], offset: int
    ) -> dict[KafkaTopicPartition, int]:
        client = library("confluent_kafka", "kafka", self._cluster.user)
        asked = [client.TopicPartition(topic, number, offset) for topic, number in partitions]
        if not asked:
            return {}
        doing = "asking for offsets"
        try:
            answers = getattr(self._consumer, method)(asked, timeout=self._cluster.timeout_s)
        except client.KafkaException as error:
            raise self._cluster.problem(error, doing, self._watch) from error
        for answer in answers:
            if answer.error is not None:
                where = f"{doing} of {answer.topic}-{answer.partition}"
                raise self._cluster.problem(answer.error, where, self._watch)
        return {KafkaTopicPartition(at.topic, at.partition): at.offset for at in answers}


def shown(partitions: Sequence[KafkaTopicPartition]) -> str:
    """The first few of them, for messages."""
    first = ", ".join(map(str, partitions[:3]))
    return f"{first} and {len(partitions) - 3} more" if len(partitions) > 3 else first
