"""Copies of records: what one operator does to a record must never be seen by another.

Law: values that nobody can change (numbers, texts, bytes, dates, tuples of them) are passed as they
are; the rest goes through the serializer, a whole bundle at a time.
"""

import datetime
import decimal
import fractions
import uuid
from itertools import chain
from typing import Final

from headgate.base.elements import PickleSerializer, Record, Serializer
from headgate.base.errors import RecordUncopyable

ATOMS: Final = frozenset(
    {
        int,
        str,
        float,
        bool,
        bytes,
        complex,
        type(None),
        datetime.date,
        datetime.datetime,
        datetime.time,
        datetime.timedelta,
        decimal.Decimal,
        fractions.Fraction,
        uuid.UUID,
        range,
        type(...),
    }
)
_CASES: Final = frozenset({tuple, frozenset})
"""As immutable as what they hold."""

_CASED: Final = ATOMS | _CASES


def are_immutable(records: list[Record]) -> bool:
    """Whether nobody can change any of these values; some tens of nanoseconds for each."""
    kinds = set(map(type, records))
    if kinds <= ATOMS:
        return True
    if kinds <= _CASES and ATOMS.issuperset(map(type, chain.from_iterable(records))):
        return True
    values = records
    while True:
        kinds = set(map(type, values))
        rest = kinds - ATOMS
        if not rest:
            return True
        if not rest <= _CASES:
            return False
        if not kinds <= _CASES:
            values = [value for value in values if type(value) in _CASES]
        values = list(chain.from_iterable(values))


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
