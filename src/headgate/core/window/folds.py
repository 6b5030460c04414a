"""Folding many records at once, straight into the dictionaries of windows.

Law: a window's value for a key is what folding its records one by one, in order, would give. Where
a record goes into several windows each gets its own copy, if it could be changed.
"""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

from headgate.base.elements import Key, Record
from headgate.base.values import are_immutable, own, own_all
from headgate.core.chain.copies import Emission
from headgate.core.window.contents import fresh, reduce_call, refuse_none, refuse_none_reduced
from headgate.core.window.spec import Aggregated, Contents, Listed, Reduced
from headgate.functions.state import Aggregate

Entries: TypeAlias = dict[Key, Record]
"""The values of one window by key."""


class Fold(Protocol):
    """One kind of contents."""

    def into_one(self, records: list[Record], keys: list[Key], tables: Iterable[Entries]) -> None:
        """Each record into one window; ``tables`` has its entries for each record."""

    def into_many(
        self, records: list[Record], keys: list[Key], tables: Iterable[tuple[Entries, ...]]
    ) -> None:
        """Each record into several windows."""

    def add(self, record: Record, key: Key, entries: Entries) -> None:
        """One record into one window."""

    def begin(self, record: Record) -> Record:
        """The value of a window with one record."""

    def step(self, value: Record, record: Record) -> Record:
        """The value with one record more."""

    def merge(self, one: Record, two: Record, /) -> Record:
        """The value of two windows that have become one."""

    def answer(self, value: Record) -> Record:
        """What a window function is called with for a value; None: nothing."""

    def answers(self, values: list[Record]) -> list[Record]:
        """What is sent for these values if there is no window function."""


class ReduceFold:
    """A record for each key."""

    def __init__(self, function: object, copies: bool) -> None:
        self._reduce = reduce_call(function)
        self._copies = copies

    def into_one(self, records: list[Record], keys: list[Key], tables: Iterable[Entries]) -> None:
        reduce = self._reduce
        for record, key, entries in zip(records, keys, tables):  # noqa: B905 - may have no end
            old = entries.get(key)
            if old is not None:
                record = reduce(old, record)
            if record is None:
                refuse_none_reduced(old)
            entries[key] = record

    def into_many(
        self, records: list[Record], keys: list[Key], tables: Iterable[tuple[Entries, ...]]
    ) -> None:
        if self._copies and not are_immutable(records):
            return spread(self, records, keys, tables)
        reduce = self._reduce
        for record, key, several in zip(records, keys, tables):  # noqa: B905 - may have no end
            for entries in several:
                old = entries.get(key)
                new = record if old is None else reduce(old, record)
                if new is None:
                    refuse_none_reduced(old)
                entries[key] = new
        return None

    def add(self, record: Record, key: Key, entries: Entries) -> None:
        self.into_one([record], [key], [entries])

    def begin(self, record: Record) -> Record:
        return refuse_none_reduced(None) if record is None else record

    def step(self, value: Record, record: Record) -> Record:
        new = self._reduce(value, record)
        if new is None:
            refuse_none()
        return new

    def merge(self, one: Record, two: Record, /) -> Record:
        return self.step(one, two)

    def answer(self, value: Record) -> Record:
        return value

    def answers(self, values: list[Record]) -> list[Record]:
        return own_all(values) if self._copies else values


class AggregateFold:
    """An accumulator for each key."""

    def __init__(self, function: Aggregate, copies: bool) -> None:
        self._function = function
        create = function.create_accumulator
        self._create = fresh(create) if copies else create
        self._add = function.add
        self.answer: Callable[[Record], Record] = function.get_result
        self._emission = Emission(function.get_result, free=not copies)
        self._copies = copies

    def into_one(self, records: list[Record], keys: list[Key], tables: Iterable[Entries]) -> None:
        create, add = self._create, self._add
        for record, key, entries in zip(records, keys, tables):  # noqa: B905 - may have no end
            old = entries.get(key)
            entries[key] = new = add(record, create() if old is None else old)
            if new is None:
                refuse_none("add() of an aggregate function", "accumulator")

    def into_many(
        self, records: list[Record], keys: list[Key], tables: Iterable[tuple[Entries, ...]]
    ) -> None:
        if self._copies and not are_immutable(records):
            return spread(self, records, keys, tables)
        create, add = self._create, self._add
        for record, key, several in zip(records, keys, tables):  # noqa: B905 - may have no end
            for entries in several:
                old = entries.get(key)
                entries[key] = new = add(record, create() if old is None else old)
                if new is None:
                    refuse_none("add() of an aggregate function", "accumulator")
        return None

    def add(self, record: Record, key: Key, entries: Entries) -> None:
        self.into_one([record], [key], [entries])

    def begin(self, record: Record) -> Record:
        return self.step(self._create(), record)

    def step(self, value: Record, record: Record) -> Record:
        new = self._add(record, value)
        if new is None:
            refuse_none("add() of an aggregate function", "accumulator")
        return new

    def merge(self, one: Record, two: Record, /) -> Record:
        merged = self._function.merge(one, two)
        if merged is None:
            refuse_none("merge() of an aggregate function", "accumulator")
        return merged

    def answers(self, values: list[Record]) -> list[Record]:
        results = self._emission.results(values)
        return [one for one in results if one is not None] if None in results else results


class ListFold:
    """All records of each key."""

    def __init__(self, copies: bool) -> None:
        self._copies = copies

    def into_one(self, records: list[Record], keys: list[Key], tables: Iterable[Entries]) -> None:
        for record, key, entries in zip(records, keys, tables):  # noqa: B905 - may have no end
            held = entries.get(key)
            if held is None:
                entries[key] = [record]
            else:
                held.append(record)

    def into_many(
        self, records: list[Record], keys: list[Key], tables: Iterable[tuple[Entries, ...]]
    ) -> None:
        if self._copies and not are_immutable(records):
            return spread(self, records, keys, tables)
        for record, key, several in zip(records, keys, tables):  # noqa: B905 - may have no end
            for entries in several:
                held = entries.get(key)
                if held is None:
                    entries[key] = [record]
                else:
                    held.append(record)
        return None

    def add(self, record: Record, key: Key, entries: Entries) -> None:
        self.into_one([record], [key], [entries])

    def begin(self, record: Record) -> Record:
        return [record]

    def step(self, value: Record, record: Record) -> Record:
        value.append(record)
        return value

    def merge(self, one: Record, two: Record, /) -> Record:
        return one + two

    def answer(self, value: Record) -> Record:
        return value.copy()

    def answers(self, values: list[Record]) -> list[Record]:
        raise AssertionError("a window that lists its records has a function")


def spread(
    fold: Fold,
    records: list[Record],
    keys: list[Key],
    tables: Iterable[tuple[Entries, ...]],
) -> None:
    """Each record into several windows, a copy for each but the first."""
    for record, key, several in zip(records, keys, tables):  # noqa: B905 - may have no end
        for number, entries in enumerate(several):
            fold.add(own(record) if number else record, key, entries)


def make_fold(contents: Contents, copies: bool) -> Fold:
    """As the plan says."""
    match contents:
        case Reduced(function):
            return ReduceFold(function, copies)
        case Aggregated(function):
            return AggregateFold(function, copies)
        case Listed():
            return ListFold(copies)
