"""One partition: its batches, who wrote them, and which transactions are open or aborted.

Laws: sequence numbers of a producer have no gap and no repetition; a reader of committed records
gets nothing at or after the last stable offset, where the oldest open transaction begins.
"""

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field

from tests.connectors.kafka.broker import errors
from tests.connectors.kafka.broker.batches import Batch, marker

REMEMBERED = 5
"""Batches of a producer whose repetition is noticed, as in Kafka."""


@dataclass
class Written:
    """What a producer has written to the partition."""

    epoch: int
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    """First and last sequence number, offset."""


@dataclass(frozen=True)
class Aborted:
    producer: int
    first: int
    last: int


@dataclass
class PartitionLog:
    """In memory; the journal brings it back after a restart."""

    batches: list[Batch] = field(default_factory=list)
    start: int = 0
    end: int = 0
    open: dict[int, int] = field(default_factory=dict)
    """Where the open transaction of a producer begins here."""
    aborted: list[Aborted] = field(default_factory=list)
    producers: dict[int, Written] = field(default_factory=dict)

    @property
    def stable(self) -> int:
        return min(self.open.values(), default=self.end)

    def append(self, batch: Batch) -> tuple[int, int]:
        """The error code, and the offset of the batch, old if it is a repetition."""
        if batch.producer >= 0:
            known = self.producers.get(batch.producer)
            if known is None or batch.epoch > known.epoch:
                if batch.sequence != 0:
                    return errors.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
                known = self.producers[batch.producer] = Written(batch.epoch)
            elif batch.epoch < known.epoch:
                return errors.INVALID_PRODUCER_EPOCH, -1
            for first, last, offset in known.batches:
                if (first, last) == (batch.sequence, batch.last_sequence):
                    return errors.NONE, offset
            expected = known.batches[-1][1] + 1 if known.batches else 0
            if batch.sequence != expected:
                repeated = batch.sequence < expected
                code = errors.DUPLICATE_SEQUENCE_NUMBER if repeated else 0
                return code or errors.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            known.batches.append((batch.sequence, batch.last_sequence, self.end))
        if batch.is_transactional:
            self.open.setdefault(batch.producer, self.end)
        return errors.NONE, self._put(batch)

    def end_transaction(self, producer: int, epoch: int, commit: bool, now_ms: int) -> None:
        """Write the marker; from here on the producer's older epochs are refused."""
        first = self.open.pop(producer, None)
        offset = self._put(marker(producer, epoch, commit, now_ms))
        if first is not None and not commit:
            self.aborted.append(Aborted(producer, first, offset))
        known = self.producers.get(producer)
        if known is not None and epoch > known.epoch:
            self.producers[producer] = Written(epoch)

    def read(
        self, offset: int, max_bytes: int, committed: bool
    ) -> tuple[bytes, list[tuple[int, int]]]:
        """Batches from the offset on, and the aborted transactions among them."""
        limit = self.stable if committed else self.end
        place = bisect_left(self.batches, offset, key=lambda batch: batch.last_offset)
        parts: list[bytes] = []
        size, upto = 0, offset
        for batch in self.batches[place:]:
            if batch.offset >= limit or (parts and size + len(batch.data) > max_bytes):
                break
            parts.append(batch.data)
            size += len(batch.data)
            upto = batch.last_offset + 1
        aborted = [
            (entry.producer, entry.first)
            for entry in sorted(self.aborted, key=lambda entry: entry.first)
            if committed and entry.last >= offset and entry.first < upto
        ]
        return b"".join(parts), aborted

    def offset_at(self, timestamp: int, committed: bool) -> tuple[int, int]:
        """Time and offset for a time, -1 for the end, or -2 for the beginning."""
        limit = self.stable if committed else self.end
        if timestamp == -1:
            return -1, limit
        if timestamp == -2:
            return -1, self.start
        for batch in self.batches:
            if batch.max_timestamp >= timestamp and batch.offset < limit:
                return batch.max_timestamp, batch.offset
        return -1, -1

    def delete_before(self, offset: int) -> int:
        """As retention and DeleteRecords do it; where the log begins then, -1: the end."""
        self.start = max(self.start, self.end if offset == -1 else min(offset, self.end))
        self.batches = [batch for batch in self.batches if batch.last_offset >= self.start]
        return self.start

    def _put(self, batch: Batch) -> int:
        offset = self.end
        batch.put_at(offset)
        self.batches.append(batch)
        self.end = batch.last_offset + 1
        return offset
