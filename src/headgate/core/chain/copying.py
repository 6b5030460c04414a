"""Copies of records: what one operator does to a record must never be seen by another.

Law: values that nobody can change (numbers, texts, bytes, dates, tuples of them) are passed as they
are; the rest goes through the serializer, a whole bundle at a time.
"""

from headgate.base.elements import PickleSerializer, Record, Serializer
from headgate.base.errors import RecordUncopyable
from headgate.base.values import are_immutable as are_immutable


class Copier:
    """Copies bundles of one output; ``operator`` is who reads the copies."""

    def __init__(self, operator: str, serializer: Serializer | None = None) -> None:
        self._operator = operator
        self._serializer = serializer or PickleSerializer()

    def copy(self, records: list[Record]) -> list[Record]:
        """The same records, safe to be changed; the list itself if nothing can be."""
        if are_immutable(records):
            return records
        try:
            data = self._serializer.dumps(records)
            return self._serializer.loads(memoryview(data))  # type: ignore[no-any-return]
        except Exception as error:
            raise RecordUncopyable(self._operator, error) from error
