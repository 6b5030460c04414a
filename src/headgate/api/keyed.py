"""KeyedStream: a stream whose records with equal keys meet in the same task."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Generic, NoReturn

from headgate.api.checks import check_field, check_function, check_object, refuse_other_kinds
from headgate.api.datastream import DataStream
from headgate.api.draft import (
    Factory,
    KeyOf,
    Transformation,
    TranslationContext,
    sorted_in_batch,
    surely_untimed,
)
from headgate.api.types.types import TypeInformation
from headgate.api.windowed import WindowedStream
from headgate.base.errors import PlanInvalid
from headgate.core.chain.operator import Operator
from headgate.core.chain.user_function import UserFunction
from headgate.core.operators.one_input import KeyedProcessOperator
from headgate.core.operators.reduce import AggregateOperator, Aggregation, ReduceOperator
from headgate.functions.assigners import WindowAssigner, count_assigner
from headgate.functions.function import (
    KeyedProcessFunction,
    KeySelector,
    ProcessFunction,
    ReduceFunction,
    Reduces,
)
from headgate.functions.type_variables import K, T, V, W
from headgate.functions.window import CountWindow
from headgate.plan import ship_strategies as ships
from headgate.plan.stream_graph import ShipStrategy

if TYPE_CHECKING:
    from headgate.api.joined import IntervalJoin


class KeyedStream(DataStream[T], Generic[T, K]):
    """Made by ``key_by``. It is no operator of its own, so it has no name or parallelism.

    An operator after it gets the records of a key in one task and in order.
    """

    def __init__(
        self, stream: DataStream[T], key_of: KeyOf, key_type: TypeInformation | None = None
    ) -> None:
        ship = ships.hash_by(key_of, key_type=key_type)
        origins = [origin.shipped(ship) for origin in stream._origins]
        super().__init__(stream._draft, origins, stream._type)
        self.key_of = key_of
        self.key_type = key_type
        self.original = stream

    def key_by(
        self,
        key_selector: Callable[[T], V] | KeySelector[T, V],
        key_type: TypeInformation | None = None,
    ) -> "KeyedStream[T, V]":
        """Other keys for the stream that this one was made from."""
        return self.original.key_by(key_selector, key_type)

    def process(
        self,
        func: KeyedProcessFunction[K, T, V],  # type: ignore[override]  # as PyFlink has it
        output_type: TypeInformation | None = None,
    ) -> DataStream[V]:
        """Call ``process_element(value, ctx)`` for each record; the context knows the key."""
        check_object(func, "process", ("process_element",), KeyedProcessFunction)
        refuse_other_kinds(func, "process", (KeyedProcessFunction, ProcessFunction))
        factory = partial(KeyedProcessOperator, func, self.key_of)
        return self._keyed("Keyed Process", factory, "process function", func, output_type)

    def reduce(self, func: Callable[[T, T], V] | Reduces[T, V]) -> DataStream[V]:
        """Fold the records of each key into one.

        A streaming job sends the running result for every record, a batch job one for each key.

        ::

            words.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
        """
        check_function(func, "reduce", ReduceFunction)
        return self._rolling(partial(ReduceOperator, func), "Reduce", "reduce function", func)

    def sum(self, position_to_sum: int | str = 0) -> DataStream[T]:
        """The running sum of one field; the other fields are those of the key's first record."""
        return self._aggregate("sum", position_to_sum)

    def min(self, position_to_min: int | str = 0) -> DataStream[T]:
        """The smallest value of one field; the other fields are those of the first record."""
        return self._aggregate("min", position_to_min)

    def max(self, position_to_max: int | str = 0) -> DataStream[T]:
        """The largest value of one field; the other fields are those of the first record."""
        return self._aggregate("max", position_to_max)

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream[T]:
        """The whole record with the smallest value, the first of equal ones."""
        return self._aggregate("min_by", position_to_min_by)

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream[T]:
        """The whole record with the largest value, the first of equal ones."""
        return self._aggregate("max_by", position_to_max_by)

    def window(self, window_assigner: WindowAssigner[T, W]) -> WindowedStream[T, K, W]:
        """Records of a key that belong together in time.

        ::

            pairs.key_by(word_of).window(TumblingEventTimeWindows.of(Time.seconds(5))).sum(1)
        """
        return WindowedStream(self, self.key_of, window_assigner)

    def count_window(
        self, size: int, slide: int | None = None
    ) -> WindowedStream[T, K, CountWindow]:
        """Each ``size`` records of a key, beginning every ``slide``; only full windows fire."""
        return self.window(count_assigner(size, slide))

    def interval_join(self, other_stream: "KeyedStream[V, object]") -> "IntervalJoin[T, V]":
        """Pairs with equal keys that are close in event time.

        ::

            orders.interval_join(payments).between(Time.seconds(0), Time.minutes(15)).process(f)
        """
        self._check_neighbour(other_stream, "interval_join")
        if not isinstance(other_stream, KeyedStream):
            raise PlanInvalid(
                "interval_join() was given a stream without keys; call key_by() on it before"
            )
        from headgate.api.joined import IntervalJoin  # noqa: PLC0415 - it imports this module

        return IntervalJoin(self, other_stream)

    def _aggregate(self, kind: Aggregation, position: int | str) -> DataStream:
        check_field(position, kind)
        name = kind.replace("_", " ").title()
        operator = partial(AggregateOperator, kind, position)
        return self._rolling(operator, name, "position", position)

    def _rolling(
        self, operator: Callable[[KeyOf, bool], Operator], name: str, role: str, function: object
    ) -> DataStream:
        """Without times a batch needs no sorting: records of a key are folded as they came."""

        def translate(context: TranslationContext) -> Factory:
            factory = partial(operator, self.key_of, context.batch)
            has_state = role == "reduce function" and UserFunction(function, "reduce").opens
            if surely_untimed(self._origins) and not has_state:
                return factory
            return sorted_in_batch(factory, self.key_of)(context)

        return self._transform_with(name, translate, role, function, self._type)

    def _each(
        self,
        name: str,
        operator: Callable[..., Operator],
        method: str,
        function: object,
        output_type: TypeInformation | None,
    ) -> DataStream:
        if not UserFunction(function, method).opens:
            return super()._each(name, operator, method, function, output_type)
        factory = partial(operator, function, self.key_of)
        return self._keyed(name, factory, f"{name.lower()} function", function, output_type)

    def _keyed(
        self,
        name: str,
        factory: Factory,
        role: str,
        function: object,
        output_type: TypeInformation | None,
    ) -> DataStream:
        """The output of an operator that has state of each key."""
        translate = sorted_in_batch(factory, self.key_of)
        return self._transform_with(name, translate, role, function, output_type)

    def _transformation(self, caller: str) -> Transformation:
        raise PlanInvalid(
            f"{caller}() is not possible on a KeyedStream, which is no operator; "
            f"call it before key_by() or after the next operator"
        )

    def _shipped(self, ship: ShipStrategy) -> NoReturn:
        raise PlanInvalid(
            f"a KeyedStream travels by its keys, not by {ship.name}; "
            f"partition the stream after the next operator instead"
        )
