"""KeyedStream: a stream whose records with equal keys meet in the same task."""

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from headgate.api.checks import check_function, check_object
from headgate.api.datastream import DataStream
from headgate.api.draft import Factory, KeyOf, Settled, Step
from headgate.api.functions import KeyedProcessFunction, KeySelector, ReduceFunction
from headgate.api.types import TypeInformation
from headgate.base.errors import PlanInvalid
from headgate.core.chain.keyed import AggregateOperator, Aggregation, ReduceOperator
from headgate.core.chain.process import KeyedProcessOperator
from headgate.plan import ships
from headgate.plan.stream_graph import Ship


class KeyedStream(DataStream):
    """Made by ``key_by``. It is no operator of its own, so it has no name or parallelism.

    Whatever is put behind it gets the records of a key in one task and in order.
    """

    def __init__(
        self, stream: DataStream, key_of: KeyOf, key_type: TypeInformation | None = None
    ) -> None:
        ship = ships.hash_by(key_of)
        origins = [origin.shipped(ship) for origin in stream._origins]
        super().__init__(stream._draft, origins, stream._type)
        self.key_of = key_of
        self.key_type = key_type
        self.original = stream

    def key_by(
        self,
        key_selector: Callable[[Any], Any] | KeySelector[Any, Any],
        key_type: TypeInformation | None = None,
    ) -> "KeyedStream":
        """Other keys for the stream that this one was made from."""
        return self.original.key_by(key_selector, key_type)

    def process(
        self,
        func: KeyedProcessFunction[Any, Any, Any],  # type: ignore[override]  # as PyFlink has it
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Call ``process_element(value, ctx)`` for each record; the context knows the key."""
        check_object(func, "process", ("process_element",), KeyedProcessFunction)
        factory = partial(KeyedProcessOperator, func, self.key_of)
        return self._then("Keyed Process", factory, "process function", func, output_type)

    def reduce(self, func: Callable[[Any, Any], Any] | ReduceFunction[Any]) -> DataStream:
        """Fold the records of each key into one.

        A streaming job sends the running result for every record, a batch job one for each key.

        ::

            words.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
        """
        check_function(func, "reduce", ReduceFunction)
        key_of = self.key_of

        def make(settled: Settled) -> Factory:
            return partial(ReduceOperator, func, key_of, settled.batch)

        return self._then_settled("Reduce", make, "reduce function", func, self._type)

    def sum(self, position_to_sum: int | str = 0) -> DataStream:
        """The running sum of one field; the other fields are those of the key's first record."""
        return self._aggregate("sum", position_to_sum)

    def min(self, position_to_min: int | str = 0) -> DataStream:
        """The smallest value of one field; the other fields are those of the first record."""
        return self._aggregate("min", position_to_min)

    def max(self, position_to_max: int | str = 0) -> DataStream:
        """The largest value of one field; the other fields are those of the first record."""
        return self._aggregate("max", position_to_max)

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream:
        """The whole record with the smallest value, the first of equal ones."""
        return self._aggregate("min_by", position_to_min_by)

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream:
        """The whole record with the largest value, the first of equal ones."""
        return self._aggregate("max_by", position_to_max_by)

    def _aggregate(self, kind: Aggregation, position: int | str) -> DataStream:
        if type(position) not in (int, str):
            raise PlanInvalid(
                f"{kind}() was given {position!r}; give the position or the name of a field"
            )
        key_of = self.key_of

        def make(settled: Settled) -> Factory:
            return partial(AggregateOperator, kind, position, key_of, settled.batch)

        name = kind.replace("_", " ").title()
        return self._then_settled(name, make, "position", position, self._type)

    def _step(self, caller: str) -> Step:
        raise PlanInvalid(
            f"{caller}() is not possible on a KeyedStream, which is no operator; "
            f"call it before key_by() or behind the next operator"
        )

    def _shipped(self, ship: Ship) -> NoReturn:
        raise PlanInvalid(
            f"a KeyedStream travels by its keys, not by {ship.name}; "
            f"partition the stream behind the next operator instead"
        )
