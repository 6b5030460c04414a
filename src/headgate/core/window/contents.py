"""What a window holds: a folded value or all its records, by bundle or by record.

A ``Fold`` works on dictionaries of windows, many records at a time; ``WindowContents`` keep the
same values in the backend, at the cursor's key and namespace. Law: a window's value for a key is
what folding its records one by one, in order, gives; reduced and aggregated windows never keep
their records. Where a record goes into several windows each gets its own copy, if it could be
changed. With an evictor all records are kept, with their times, and folded when the window fires.
"""

from collections.abc import Callable, Iterable, Iterator
from operator import length_hint
from typing import NoReturn, Protocol, TypeAlias

from headgate.base.elements import Key, Record
from headgate.base.values import are_immutable, own, own_all
from headgate.core.chain.keyed_context import KeyedContext
from headgate.core.operators.record_loops import ResultLoop
from headgate.core.state.cursor import Namespace
from headgate.core.state.tables import Entries
from headgate.core.window.spec import (
    FOLDED,
    LISTED,
    Aggregated,
    Contents,
    Listed,
    Reduced,
    WindowPlan,
)
from headgate.core.window.user_code import WindowTools, merge_values
from headgate.functions.evictors import Evictor, TimestampedValue
from headgate.functions.state import Aggregate
from headgate.functions.window import Window

Failed: TypeAlias = Callable[[int, Exception], None]
"""Told of a place in a list at which user code has raised."""

Send: TypeAlias = Callable[[Window, Record], None]
"""Takes the folded value of a window, or the list of its records."""


Addition: TypeAlias = tuple[Record, Key, Entries]
"""A record, its key, and the entries of a window that holds it."""


class Fold(Protocol):
    """One kind of contents."""

    def add_all(self, added: Iterable[Addition]) -> None:
        """Each record to the value of its key in the entries of a window."""

    def begin(self, record: Record) -> Record:
        """The value of a window with one record."""

    def step(self, value: Record, record: Record) -> Record:
        """The value with one record more."""

    def merge(self, first: Record, second: Record, /) -> Record:
        """The value of two windows that have merged."""

    def answer(self, value: Record) -> Record:
        """What a window function is called with for a value; None: nothing."""

    def answers(self, values: list[Record], failed: Failed | None = None) -> list[Record]:
        """What is sent for these values if there is no window function.

        ``failed`` is told at which place user code has raised, to leave that out; None: it raises.
        """


class ReduceFold:
    """A record for each key."""

    def __init__(self, function: object, copies: bool) -> None:
        self._reduce: Callable[[Record, Record], Record] = getattr(function, "reduce", function)  # type: ignore[arg-type]
        self._copies = copies

    def add_all(self, added: Iterable[Addition]) -> None:
        reduce = self._reduce
        for record, key, entries in added:
            old = entries.get(key)
            if old is not None:
                record = reduce(old, record)
            if record is None:
                _refuse_none_reduced(old)
            entries[key] = record

    def begin(self, record: Record) -> Record:
        return _refuse_none_reduced(None) if record is None else record

    def step(self, value: Record, record: Record) -> Record:
        new = self._reduce(value, record)
        if new is None:
            _refuse_none_reduced(value)
        return new

    def merge(self, first: Record, second: Record, /) -> Record:
        return self.step(first, second)

    def answer(self, value: Record) -> Record:
        return value

    def answers(self, values: list[Record], failed: Failed | None = None) -> list[Record]:
        return own_all(values) if self._copies else values


class AggregateFold:
    """An accumulator for each key."""

    def __init__(self, function: Aggregate, copies: bool) -> None:
        create = function.create_accumulator
        # A function may return the same accumulator each time.
        self._create: Callable[[], Record] = (lambda: own(create())) if copies else create
        self._add = function.add
        self._merge = function.merge
        self.answer: Callable[[Record], Record] = function.get_result
        self._loop = ResultLoop(function.get_result, copies)
        self._copies = copies

    def add_all(self, added: Iterable[Addition]) -> None:
        create, add = self._create, self._add
        for record, key, entries in added:
            old = entries.get(key)
            entries[key] = new = add(record, create() if old is None else old)
            if new is None:
                _refuse_none("add() of an aggregate function", "accumulator")

    def begin(self, record: Record) -> Record:
        return self.step(self._create(), record)

    def step(self, value: Record, record: Record) -> Record:
        new = self._add(record, value)
        if new is None:
            _refuse_none("add() of an aggregate function", "accumulator")
        return new

    def merge(self, first: Record, second: Record, /) -> Record:
        merged = self._merge(first, second)
        if merged is None:
            _refuse_none("merge() of an aggregate function", "accumulator")
        return merged

    def answers(self, values: list[Record], failed: Failed | None = None) -> list[Record]:
        results = self._loop.results(values) if failed is None else self._answered(values, failed)
        if None in results:
            return [result for result in results if result is not None]
        return results

    def _answered(self, values: list[Record], failed: Failed) -> list[Record]:
        left = iter(values)
        results: list[Record] = []
        while True:
            try:
                self._loop.add_results(left, results)
                return results
            except Exception as error:
                failed(len(values) - length_hint(left) - 1, error)


class ListFold:
    """All records of each key."""

    def add_all(self, added: Iterable[Addition]) -> None:
        for record, key, entries in added:
            held = entries.get(key)
            if held is None:
                entries[key] = [record]
            else:
                held.append(record)

    def begin(self, record: Record) -> Record:
        return [record]

    def step(self, value: Record, record: Record) -> Record:
        value.append(record)
        return value

    def merge(self, first: Record, second: Record, /) -> Record:
        return first + second

    def answer(self, value: Record) -> Record:
        return value.copy()

    def answers(self, values: list[Record], failed: Failed | None = None) -> list[Record]:
        raise AssertionError("a window that lists its records has a function")


def make_fold(contents: Contents, copies: bool) -> Fold:
    """The fold for the contents that the plan wants."""
    match contents:
        case Reduced(function):
            return ReduceFold(function, copies)
        case Aggregated(function):
            return AggregateFold(function, copies)
        case Listed():
            return ListFold()


class WindowContents(Protocol):
    """What windows hold, for all keys; each method is about the key and window of the cursor."""

    def add(self, record: Record, timestamp: int | None) -> None:
        """A record came into the window."""

    def fire(self, window: Window, send: Send) -> None:
        """Send what there is; nothing if there is nothing."""

    def put(self, value: Record) -> None:
        """What was folded elsewhere, or a list of records, into a window that is empty."""

    def clear(self) -> None: ...

    def merge(self, target: Namespace, sources: Iterable[Namespace]) -> None:
        """All of ``sources`` into ``target``, wherever the cursor is."""


class FoldedContents:
    """One record or accumulator."""

    def __init__(self, keyed: KeyedContext, fold: Fold) -> None:
        self._keyed = keyed
        self._value = value = keyed.backend.value_state(FOLDED)
        self._fold = fold
        self._begin, self._step, self._get = fold.begin, fold.step, value.value
        self.put: Callable[[Record], None] = value.update
        self.clear: Callable[[], None] = value.clear

    def add(self, record: Record, timestamp: int | None) -> None:
        old = self._get()
        self.put(self._begin(record) if old is None else self._step(old, record))

    def fire(self, window: Window, send: Send) -> None:
        value = self._value.value()
        if value is not None:
            answer = self._fold.answer(value)
            if answer is not None:
                send(window, answer)

    def merge(self, target: Namespace, sources: Iterable[Namespace]) -> None:
        merge_values(self._keyed, self._value, self._fold.merge, target, sources)


class ListedContents:
    """All records."""

    def __init__(self, keyed: KeyedContext) -> None:
        self._cursor = keyed.cursor
        self._records = keyed.backend.list_state(LISTED)

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
        keyed: KeyedContext,
        evictor: Evictor[Record, Window],
        tools: WindowTools,
        fold: Fold,
    ) -> None:
        super().__init__(keyed)
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
        result = self._folded([element.value for element in elements])
        if result is not None:
            send(window, result)
        evictor.evict_after(elements, len(elements), window, tools)
        self._records.update(elements)

    def _folded(self, records: list[Record]) -> Record:
        if isinstance(self._fold, ListFold):
            return records
        if not records:
            return None
        value = self._fold.begin(records[0])
        for record in records[1:]:
            value = self._fold.step(value, record)
        return self._fold.answer(value)


def open_contents(plan: WindowPlan, keyed: KeyedContext, tools: WindowTools) -> WindowContents:
    """The contents of windows as the plan wants them."""
    fold = make_fold(plan.contents, copies=True)
    if plan.evictor is not None:
        return EvictedContents(keyed, plan.evictor, tools, fold)
    return ListedContents(keyed) if isinstance(fold, ListFold) else FoldedContents(keyed, fold)


def in_each_window(
    records: list[Record],
    keys: list[Key],
    windows: Iterable[tuple[Entries, ...]],
    copies: bool,
) -> Iterator[Addition]:
    """Each record once for each of its windows, as a copy in all but the last if it can be changed.

    ``windows``: the entries of all windows that hold the record, for each record.
    """
    if copies and not are_immutable(records):
        return _copied_for_windows(records, keys, windows)
    # What has the same windows for all records has no end.
    each = zip(records, keys, windows)  # noqa: B905
    return ((record, key, entries) for record, key, several in each for entries in several)


def _copied_for_windows(
    records: list[Record], keys: list[Key], windows: Iterable[tuple[Entries, ...]]
) -> Iterator[Addition]:
    for record, key, several in zip(records, keys, windows):  # noqa: B905
        for entries in several[:-1]:  # before a fold can change the record
            yield own(record), key, entries
        for entries in several[-1:]:
            yield record, key, entries


def _refuse_none(who: str = "a reduce function", what: str = "combined record") -> NoReturn:
    """Nothing was returned, which is mostly a forgotten ``return``."""
    raise TypeError(f"{who} returned None; return the {what}")


def _refuse_none_reduced(old: Record) -> NoReturn:
    """Neither the first record of a window nor what becomes of it may be None."""
    if old is not None:
        _refuse_none()
    raise TypeError(
        "a window that reduces was given the record None, which it cannot keep: there None says "
        "that the window is empty; filter such records out before, or map them to another value"
    )
