"""Process functions: any number of records out, also to side outputs, with a context per record."""

from collections.abc import Callable, Iterator
from itertools import repeat

from headgate.base.elements import MIN_WATERMARK_MS, Bundle, Key, Record
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.operators import FunctionOperator, iterable
from headgate.core.chain.tags import Sorter


class ProcessContext:
    """What ``process_element`` learns about the record; one object, set anew for each."""

    __slots__ = ("_key", "_timestamp")

    def __init__(self) -> None:
        self._key: Key = None
        self._timestamp: int | None = None

    def timestamp(self) -> int:
        """The record's event time; the smallest of all times if it has none."""
        return MIN_WATERMARK_MS if self._timestamp is None else self._timestamp

    def get_current_key(self) -> Key:
        """The key of the record, on a keyed stream."""
        return self._key

    def set(self, timestamp: int | None, key: Key = None) -> None:
        """The next record is about to be processed."""
        self._timestamp = timestamp
        self._key = key


class ProcessOperator(FunctionOperator):
    """``process_element(value, context)`` for each record."""

    method = "process_element"

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._context = ProcessContext()
        self._sorter = Sorter(self.output, not self.reuses_objects)

    def process(self, bundle: Bundle, number: int) -> None:
        call, context, sorter = self._call, self._context, self._sorter
        for record, timestamp in timed(bundle):
            context.set(timestamp)
            found = call(record, context)
            if found is not None:
                sorter.take(iterable(found, "process_element"), timestamp)
        sorter.flush()


class KeyedProcessOperator(ProcessOperator):
    """The same on a keyed stream: the context knows the key."""

    def __init__(self, function: object, key_of: Callable[[Record], Key]) -> None:
        super().__init__(function)
        self._key_of = key_of

    def process(self, bundle: Bundle, number: int) -> None:
        call, context, sorter, key_of = self._call, self._context, self._sorter, self._key_of
        for record, timestamp in timed(bundle):
            context.set(timestamp, key_of(record))
            found = call(record, context)
            if found is not None:
                sorter.take(iterable(found, "process_element"), timestamp)
        sorter.flush()


def timed(bundle: Bundle) -> Iterator[tuple[Record, int | None]]:
    """Records with their timestamps."""
    return zip(bundle.records, bundle.timestamps or repeat(None))  # noqa: B905 - repeat has no end
