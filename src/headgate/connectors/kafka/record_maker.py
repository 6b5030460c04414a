"""Records of a task on their way to the client: made, and checked for what the client refuses.

Law: a record that gets through can be written, as far as that can be known before it is; so no
checkpoint holds one that fails every commit. One that cannot be made, or that the client would
refuse, goes to the operator's error policy; trouble with brokers or registries does not.
"""

from collections.abc import Callable
from typing import Any, Final

from headgate.base.elements import Record
from headgate.base.errors import ConnectorError, shown
from headgate.connectors.kafka.producer import too_large
from headgate.connectors.kafka.serialization import (
    ANY_PARTITION,
    NOW,
    KafkaRecordSerializationSchema,
    ProducerRecord,
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
        """Those that can be written, in order."""
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
