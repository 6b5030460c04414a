"""What a window holds, at the cursor's key and namespace: a folded value, or all its records.

Law: reduced and aggregated windows never keep their records. With an evictor all are kept, with
their times, and folded when the window fires.
"""

from collections.abc import Callable, Iterable
from typing import Final, NoReturn, Protocol, TypeAlias

from headgate.base.elements import Record
from headgate.base.values import own
from headgate.core.chain.keyed_context import KeyedContext
from headgate.core.state.backend import StateSpec
from headgate.core.state.cursor import Namespace
from headgate.core.window.spec import Aggregated, Listed, Reduced, WindowPlan
from headgate.core.window.tools import WindowTools, merge_values
from headgate.functions.evictors import Evictor, TimestampedValue
from headgate.functions.state import Aggregate
from headgate.functions.window import Window

Send: TypeAlias = Callable[[Window, Record], None]
"""Takes the folded value of a window, or the list of its records."""

FOLDED: Final = StateSpec("window contents", "value", namespaced=True)
LISTED: Final = StateSpec("window records", "list", namespaced=True)


class WindowContents(Protocol):
    """Of all keys and windows; each method is about those of the cursor."""

    def add(self, record: Record, timestamp: int | None) -> None:
        """A record came into the window."""

    def fire(self, window: Window, send: Send) -> None:
        """Send what there is; nothing if there is nothing."""

    def put(self, value: Record) -> None:
        """What was folded elsewhere, or a list of records, into a window that is empty."""

    def clear(self) -> None: ...

    def merge(self, target: Namespace, sources: Iterable[Namespace]) -> None:
        """All of ``sources`` into ``target``, wherever the cursor stands."""


class ReducedContents:
    """One record."""

    def __init__(self, room: KeyedContext, function: object) -> None:
        self._room = room
        self._value = room.backend.value_state(FOLDED)
        self._reduce = reduce_call(function)

    def add(self, record: Record, timestamp: int | None) -> None:
        old = self._value.value()
        if old is not None:
            record = self._combined(old, record)
        elif record is None:
            refuse_none_reduced(old)
        self._value.update(record)

    def fire(self, window: Window, send: Send) -> None:
        value = self._value.value()
        if value is not None:
            send(window, value)

    def put(self, value: Record) -> None:
        self._value.update(value)

    def clear(self) -> None:
        self._value.clear()

    def merge(self, target: Namespace, sources: Iterable[Namespace]) -> None:
        merge_values(self._room, self._value, self._combined, target, sources)

    def _combined(self, one: Record, two: Record, /) -> Record:
        record = self._reduce(one, two)
        if record is None:
            refuse_none()
        return record


class AggregatedContents:
    """One accumulator."""

    def __init__(self, room: KeyedContext, function: Aggregate) -> None:
        self._room = room
        self._value = room.backend.value_state(FOLDED)
        self._function = function
        self._create = fresh(function.create_accumulator)

    def add(self, record: Record, timestamp: int | None) -> None:
        accumulator = self._value.value()
        if accumulator is None:
            accumulator = self._create()
        accumulator = self._function.add(record, accumulator)
        if accumulator is None:
            refuse_none("add() of an aggregate function", "accumulator")
        self._value.update(accumulator)

    def fire(self, window: Window, send: Send) -> None:
        accumulator = self._value.value()
        if accumulator is not None:
            result = self._function.get_result(accumulator)
            if result is not None:
                send(window, result)

    def put(self, value: Record) -> None:
        self._value.update(value)

    def clear(self) -> None:
        self._value.clear()

    def merge(self, target: Namespace, sources: Iterable[Namespace]) -> None:
        merge_values(self._room, self._value, self._merged, target, sources)

    def _merged(self, one: Record, two: Record, /) -> Record:
        accumulator = self._function.merge(one, two)
        if accumulator is None:
            refuse_none("merge() of an aggregate function", "accumulator")
        return accumulator


class ListedContents:
    """All records."""

    def __init__(self, room: KeyedContext) -> None:
        self._cursor = room.cursor
        self._records = room.backend.list_state(LISTED)

    def add(self, record: Record, timestamp: int | None) -> None:
        self._records.add(record)

    def fire(self, window: Window, send: Send) -> None:
        records = list(self._records.get())
        if records:
            send(window, records)

    def put(self, value: Record) -> None:
        for record in value:
            self.add(record, None)

    def clear(self) -> None:
        self._records.clear()

    def merge(self, target: Namespace, sources: Iterable[Namespace]) -> None:
        cursor, records = self._cursor, self._records
        back = cursor.namespace
        found: list[Record] = []
        for source in sources:
            cursor.namespace = source
            found += records.get()
            records.clear()
        cursor.namespace = target
        records.add_all(found)
        cursor.namespace = back


class EvictedContents(ListedContents):
    """All records with their times; an evictor deletes some whenever the window fires."""

    def __init__(
        self,
        room: KeyedContext,
        evictor: Evictor[Record, Window],
        tools: WindowTools,
        fold: Callable[[list[Record]], Record],
    ) -> None:
        super().__init__(room)
        self._evictor = evictor
        self._tools = tools
        self._fold = fold

    def add(self, record: Record, timestamp: int | None) -> None:
        self._records.add(TimestampedValue(record, timestamp))

    def fire(self, window: Window, send: Send) -> None:
        elements = list(self._records.get())
        if not elements:
            return
        evictor, tools = self._evictor, self._tools
        evictor.evict_before(elements, len(elements), window, tools)
        result = self._fold([element.value for element in elements])
        if result is not None:
            send(window, result)
        evictor.evict_after(elements, len(elements), window, tools)
        self._records.update(elements)


def open_contents(plan: WindowPlan, room: KeyedContext, tools: WindowTools) -> WindowContents:
    """As the plan says."""
    contents = plan.contents
    if plan.evictor is not None:
        return EvictedContents(room, plan.evictor, tools, folding_at_once(plan))
    match contents:
        case Reduced(function):
            return ReducedContents(room, function)
        case Aggregated(function):
            return AggregatedContents(room, function)
        case Listed():
            return ListedContents(room)


def folding_at_once(plan: WindowPlan) -> Callable[[list[Record]], Record]:
    """Makes of all records of a window what it sends; None: nothing."""
    match plan.contents:
        case Reduced(function):
            reduce = reduce_call(function)

            def reduced(records: list[Record]) -> Record:
                if not records:
                    return None
                result = None
                for number, record in enumerate(records):
                    old, result = result, reduce(result, record) if number else record
                    if result is None:
                        refuse_none_reduced(old)
                return result

            return reduced
        case Aggregated(function):

            def aggregated(records: list[Record]) -> Record:
                if not records:
                    return None
                accumulator = own(function.create_accumulator())
                for record in records:
                    accumulator = function.add(record, accumulator)
                    if accumulator is None:
                        refuse_none("add() of an aggregate function", "accumulator")
                return function.get_result(accumulator)

            return aggregated
        case Listed():
            return lambda records: records


def fresh(create: Callable[[], Record]) -> Callable[[], Record]:
    """Makes accumulators, each of them its window's own: a function may give the same each time."""
    return lambda: own(create())


def reduce_call(function: object) -> Callable[[Record, Record], Record]:
    """What to call for two records."""
    return getattr(function, "reduce", function)  # type: ignore[arg-type]


def refuse_none(who: str = "a reduce function", what: str = "combined record") -> NoReturn:
    """Nothing was returned, which is mostly a forgotten ``return``."""
    raise TypeError(f"{who} returned None; return the {what}")


def refuse_none_reduced(old: Record) -> NoReturn:
    """Neither the first record of a window nor what becomes of it may be None."""
    if old is not None:
        refuse_none()
    raise TypeError(
        "a window that reduces was given the record None, which it cannot keep: there None says "
        "that the window is empty; filter such records out before, or map them to another value"
    )
