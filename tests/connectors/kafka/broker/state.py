"""All that the broker keeps: topics, transactions, offsets; and the journal that brings it back.

Every request that changes something is written to the journal before it is answered, and a broker
that starts plays them again, with the times at which they came. Law: nothing here depends on
anything but these requests and times.
"""

import os
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.connectors.kafka.broker import errors
from tests.connectors.kafka.broker.batches import BatchCorrupt, read_batches
from tests.connectors.kafka.broker.groups import GroupCoordinator
from tests.connectors.kafka.broker.log import PartitionLog
from tests.connectors.kafka.broker.transactions import TransactionCoordinator

MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's default."""


@dataclass
class Topic:
    partitions: list[PartitionLog]
    config: dict[str, str] = field(default_factory=dict)

    @property
    def max_bytes(self) -> int:
        return int(self.config.get("max.message.bytes", MAX_MESSAGE_BYTES))


class BrokerState:
    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.groups = GroupCoordinator()
        self.transactions = TransactionCoordinator(self._end_partition, self._end_offsets)

    def partition(self, topic: str, number: int) -> PartitionLog | None:
        found = self.topics.get(topic)
        there = found is not None and 0 <= number < len(found.partitions)
        return found.partitions[number] if found is not None and there else None

    def create(self, topic: str, partitions: int, config: dict[str, str]) -> int:
        if topic in self.topics:
            return errors.TOPIC_ALREADY_EXISTS
        if partitions < 1:
            return errors.INVALID_PARTITIONS
        self.topics[topic] = Topic([PartitionLog() for _ in range(partitions)], config)
        return errors.NONE

    def widen(self, topic: str, partitions: int) -> int:
        found = self.topics.get(topic)
        if found is None:
            return errors.UNKNOWN_TOPIC_OR_PARTITION
        if partitions <= len(found.partitions):
            return errors.INVALID_PARTITIONS
        found.partitions += [PartitionLog() for _ in range(partitions - len(found.partitions))]
        return errors.NONE

    def produce(self, topic: str, number: int, data: bytes) -> tuple[int, int]:
        """Error code and offset of the first record."""
        log = self.partition(topic, number)
        if log is None:
            return errors.UNKNOWN_TOPIC_OR_PARTITION, -1
        try:
            batches = read_batches(data)
        except BatchCorrupt:
            return errors.CORRUPT_MESSAGE, -1
        first, code = -1, errors.NONE
        for batch in batches:
            if len(batch.data) > self.topics[topic].max_bytes:
                return errors.MESSAGE_TOO_LARGE, -1
            if batch.is_transactional:
                where = (topic, number)
                code = self.transactions.may_write(batch.producer, batch.epoch, where)
            if not code:
                code, offset = log.append(batch)
                first = offset if first < 0 else first
            if code:
                return code, -1
        return errors.NONE, first

    def _end_partition(
        self, partition: tuple[str, int], producer: int, epoch: int, commit: bool, now_ms: int
    ) -> None:
        log = self.partition(*partition)
        if log is not None:
            log.end_transaction(producer, epoch, commit, now_ms)

    def _end_offsets(self, group: str, producer: int, commit: bool) -> None:
        self.groups.group(group).end_offsets(producer, commit)


class Journal:
    """Frames in a file; what was written survives the broker's process, not a power cut."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)

    def write(self, entry: object) -> None:
        data = pickle.dumps(entry)
        os.write(self._file, len(data).to_bytes(4, "big") + data)

    def entries(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Time, API, version and body of each request."""
        data, at = self._path.read_bytes(), 0
        while at + 4 <= len(data):
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if end > len(data):
                return
            yield pickle.loads(data[at + 4 : end])
            at = end

    def close(self) -> None:
        os.close(self._file)
