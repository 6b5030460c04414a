"""Records of a partition as the fetcher hands them to its reader, a batch at a time.

The client's messages are large and many at a time fall out of the processor's caches, so what is
needed of them is taken at once. Law: values, times and offsets stand side by side, in order.
"""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final

from headgate.connectors.kafka.deserialization import kafka_record

_STAMP: Final = itemgetter(1)
"""Of the kind of a timestamp, 0 if there is none, and the time."""


class FetchedBatch:
    """Values (or whole records), times and offsets; offsets may have gaps."""

    __slots__ = ("_offsets", "bytes", "raw", "times")

    def __init__(
        self, raw: list[Any], times: list[int | None], offsets: Sequence[int], size: int
    ) -> None:
        self.raw = raw
        """Bytes or None of each value, or KafkaRecords."""
        self.times = times
        self._offsets = offsets
        self.bytes = size

    def __len__(self) -> int:
        return len(self.raw)

    @property
    def next_offset(self) -> int:
        """Behind the last record."""
        return self._offsets[-1] + 1

    def offset(self, index: int) -> int:
        return self._offsets[index]

    def divided(self, count: int) -> tuple["FetchedBatch", "FetchedBatch"]:
        """The first ``count`` records, and the rest."""
        size = self.bytes * count // max(1, len(self))
        raw, times, offsets = self.raw, self.times, self._offsets
        return (
            FetchedBatch(raw[:count], times[:count], offsets[:count], size),
            FetchedBatch(raw[count:], times[count:], offsets[count:], self.bytes - size),
        )

    def before(self, stop: int) -> "FetchedBatch":
        """Those with a smaller offset."""
        return self.divided(sum(offset < stop for offset in self._offsets))[0]


def batch_of(kind: Any, messages: list[Any], whole: bool) -> FetchedBatch:
    """What is needed of messages of one partition; ``kind`` is their class.

    Its methods are mapped over them, which is three times as fast as a loop that calls them.
    """
    stamps: list[int] = list(map(_STAMP, map(kind.timestamp, messages)))
    times: list[int | None] = [*stamps]
    if min(stamps) <= 0:  # it may have none; what the number is then, is nowhere said
        kinds = [message.timestamp()[0] for message in messages]
        times = [stamp if known else None for known, stamp in zip(kinds, stamps, strict=True)]
    first, last = messages[0].offset(), messages[-1].offset()
    offsets: Sequence[int] = range(first, last + 1)
    if len(offsets) != len(messages):  # compacted, or with marks of transactions between them
        offsets = list(map(kind.offset, messages))
    raw = list(map(kafka_record if whole else kind.value, messages))
    return FetchedBatch(raw, times, offsets, sum(map(len, messages)))
