"""Operators with two inputs: a method of the user's function for each of them."""

from collections.abc import Callable, Sequence

from headgate.base.elements import Bundle, Key, Record
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.guest import Guest
from headgate.core.chain.operator import Operator
from headgate.core.chain.operators import iterable
from headgate.core.chain.process import ProcessContext, timed
from headgate.core.chain.tags import Sorter


class TwoInputOperator(Operator):
    """Base: one user's object with a method for each input."""

    inputs = 2
    methods: tuple[str, str]

    def __init__(self, function: object) -> None:
        self._guest = Guest(function, self.methods[0])
        self._calls: list[Callable[..., Record]]

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._guest.open(context)
        self._calls = [getattr(self._guest.function, method) for method in self.methods]
        self._sorter = Sorter(self.output, not self.reuses_objects)

    def close(self) -> None:
        self._guest.close()


class CoMapOperator(TwoInputOperator):
    """One record out for each record in; None is dropped."""

    methods = ("map1", "map2")

    def process(self, bundle: Bundle, number: int) -> None:
        call, sorter = self._calls[number], self._sorter
        for record, timestamp in timed(bundle):
            result = call(record)
            if result is not None:
                sorter.take((result,), timestamp)
        sorter.flush()


class CoFlatMapOperator(TwoInputOperator):
    """Any number of records out for each record in."""

    methods = ("flat_map1", "flat_map2")

    def process(self, bundle: Bundle, number: int) -> None:
        call, sorter = self._calls[number], self._sorter
        for record, timestamp in timed(bundle):
            found = call(record)
            if found is not None:
                sorter.take(iterable(found, self.methods[number]), timestamp)
        sorter.flush()


class CoProcessOperator(TwoInputOperator):
    """``process_element1`` and ``process_element2``, with a context and side outputs."""

    methods = ("process_element1", "process_element2")

    def __init__(self, function: object) -> None:
        super().__init__(function)
        self._context = ProcessContext()

    def process(self, bundle: Bundle, number: int) -> None:
        call, context, sorter = self._calls[number], self._context, self._sorter
        for record, timestamp in timed(bundle):
            context.set(timestamp, self._key(record, number))
            found = call(record, context)
            if found is not None:
                sorter.take(iterable(found, self.methods[number]), timestamp)
        sorter.flush()

    def _key(self, record: Record, number: int) -> Key:
        return None


class KeyedCoProcessOperator(CoProcessOperator):
    """The same on two keyed streams."""

    def __init__(
        self,
        function: object,
        key_of_1: Callable[[Record], Key],
        key_of_2: Callable[[Record], Key],
    ) -> None:
        super().__init__(function)
        self._keys_of: Sequence[Callable[[Record], Key]] = (key_of_1, key_of_2)

    def _key(self, record: Record, number: int) -> Key:
        return self._keys_of[number](record)
