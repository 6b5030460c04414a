"""A record that somebody still holds is copied, wherever it is held; one that nobody holds is not.

Each function makes a record, keeps it in another place, and spoils what it has kept when it is
called again. What was sent must not change. Row 7.
"""

import functools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from headgate.api.row import Row
from headgate.base.elements import Bundle
from headgate.core.operators.one_input import FilterOperator, MapOperator, ProcessOperator
from tests.base import shape_kit as kit
from tests.core.chain.kit import run

pytestmark = pytest.mark.usefixtures("inlining")

Make = Callable[[str, int], Any]


def as_list(name: str, amount: int) -> list[Any]:
    return [name, amount]


def as_row(name: str, amount: int) -> Row:
    return Row(name=name, amount=amount)


MAKERS: list[Make] = [kit.as_dict, as_list, kit.Plain, kit.Data, kit.Slots, kit.Struct, as_row]
GLOBAL: list[Any] = []


def spoil(record: Any) -> None:
    if isinstance(record, dict | Row):
        record["amount"] = "spoiled"
    elif isinstance(record, list):
        record.append("spoiled")
    else:
        record.amount = "spoiled"


class Keeper:
    """``hold`` keeps a record in some place; ``release`` spoils what it finds there."""

    def __init__(self, make: Make) -> None:
        self.make = make
        self.kept: Any = []

    def map(self, value: int) -> Any:
        self.release()
        record = self.make("a", value)
        self.hold(record)
        return record

    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        self.release()
        record = self.make("a", value)
        self.hold(record)
        yield record

    def hold(self, record: Any) -> None:
        self.kept.append(record)

    def release(self) -> None:
        for record in self.kept:
            spoil(record)


class InGlobal(Keeper):
    def hold(self, record: Any) -> None:
        GLOBAL.append(record)

    def release(self) -> None:
        for record in GLOBAL:
            spoil(record)
        GLOBAL.clear()


class InDefault(Keeper):
    def hold(self, record: Any, kept: list[Any] = []) -> None:  # noqa: B006 - that is the point
        kept.append(record)
        self.kept = kept


class InClosure(Keeper):
    def __init__(self, make: Make) -> None:
        super().__init__(make)
        held: list[Any] = []
        self.kept = (lambda: held)()
        self.hold = lambda record: held.append(record)  # type: ignore[method-assign]


class InThread(Keeper):
    def __init__(self, make: Make) -> None:
        super().__init__(make)
        self.local = threading.local()

    def hold(self, record: Any) -> None:
        self.local.record = record
        self.kept = [record]


class InOther(Keeper):
    def hold(self, record: Any) -> None:
        self.kept = {"deep": ({"deeper": record},)}

    def release(self) -> None:
        if self.kept:
            spoil(self.kept["deep"][0]["deeper"])


class InPartial(Keeper):
    def hold(self, record: Any) -> None:
        self.kept = [functools.partial(spoil, record)]

    def release(self) -> None:
        for change in self.kept:
            change()


class InGenerator(Keeper):
    def hold(self, record: Any) -> None:
        def waiting() -> Iterator[None]:
            yield
            spoil(record)
            yield

        self.kept = waiting()
        next(self.kept)

    def release(self) -> None:
        if self.kept:
            next(self.kept)


class InTraceback(Keeper):
    def hold(self, record: Any) -> None:
        try:
            raise ValueError("kept")
        except ValueError as error:
            self.kept = error

    def release(self) -> None:
        if self.kept:
            spoil(self.kept.__traceback__.tb_frame.f_locals["record"])


class InWeakReference(Keeper):
    def hold(self, record: Any) -> None:
        self.kept = []
        if type(record).__weakrefoffset__:
            self.kept = [weakref.ref(record)]

    def release(self) -> None:
        for reference in self.kept:
            if (record := reference()) is not None:
                spoil(record)


class ItsDict(Keeper):
    """Does not keep the record, but what it consists of."""

    def hold(self, record: Any) -> None:
        self.kept = vars(record) if hasattr(record, "__dict__") else {}

    def release(self) -> None:
        if self.kept:
            self.kept["amount"] = "spoiled"


class ItsValues(Keeper):
    """Keeps the list that a row consists of from the moment that somebody asks for it."""

    def hold(self, record: Any) -> None:
        self.kept = record._values if type(record) is Row else []

    def release(self) -> None:
        if self.kept:
            self.kept[1] = "spoiled"


class AMethod(Keeper):
    def hold(self, record: Any) -> None:
        self.kept = record.__setattr__ if hasattr(record, "amount") else None
        if isinstance(record, Row):
            self.kept = record.__setitem__
        if isinstance(record, list):
            self.kept = record.append

    def release(self) -> None:
        if self.kept:
            arguments = ("amount", "spoiled")
            self.kept(*arguments[-1:] if self.kept.__name__ == "append" else arguments)


class InCache(Keeper):
    """Gives the same record for the same number; that is what a cache is for."""

    def __init__(self, make: Make) -> None:
        super().__init__(make)
        self.made = functools.lru_cache(lambda value: make("a", value))

    def map(self, value: int) -> Any:
        self.release()
        return self._cached(value)

    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        self.release()
        yield self._cached(value)

    def _cached(self, value: int) -> Any:
        record = self.made(value)
        self.kept = [record]
        return record

    def release(self) -> None:
        super().release()
        self.made.cache_clear()


class AfterItsYield(Keeper):
    """Goes on with the record that it has yielded."""

    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        record = self.make("a", value)
        yield record
        spoil(record)


class InReturnedList(Keeper):
    """Returns a list that it keeps."""

    def process_element(self, value: int, ctx: Any) -> Any:
        self.release()
        self.kept = [self.make("a", value)]
        return self.kept


class WithinTheRecord(Keeper):
    """The record is new, what it holds is not."""

    def __init__(self, make: Make) -> None:
        super().__init__(lambda name, value: make(name, [value]))
        self.plain = make

    def map(self, value: int) -> Any:
        self.release()
        self.kept = [[value]]
        return self.plain("a", self.kept[0])

    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        self.release()
        self.kept = [[value]]
        yield self.plain("a", self.kept[0])


KEEPERS: list[type[Keeper]] = [
    *(Keeper, InGlobal, InDefault, InClosure, InThread, InOther, InPartial, InGenerator),
    *(
        InTraceback,
        InWeakReference,
        ItsDict,
        ItsValues,
        AMethod,
        InCache,
        AfterItsYield,
        InReturnedList,
        WithinTheRecord,
    ),
]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("keeper", KEEPERS, ids=lambda keeper: keeper.__name__)
@pytest.mark.parametrize("operator", [MapOperator, ProcessOperator])
def test_what_was_sent_does_not_change(operator: Any, keeper: type[Keeper], make: Make) -> None:
    function = keeper(make)
    bundles = [Bundle([1, 2, 3]), Bundle([3, 4])]
    output = run(operator(function), bundles)
    function.release()
    GLOBAL.clear()
    assert output.records == [function.make("a", value) for value in (1, 2, 3, 3, 4)]


class Pair(NamedTuple):
    name: str
    part: Any


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "dict": lambda part: {"name": "new", "part": part},
    "list": lambda part: ["new", part],
    "tuple": lambda part: ("new", part),
    "named tuple": lambda part: Pair("new", part),
    "instance": lambda part: kit.Plain("new", part),
    "slots": lambda part: kit.Slots("new", part),
    "row": lambda part: Row(name="new", part=part),
    "two deep": lambda part: {"parts": [(1, part)]},
    "twice": lambda part: [part, part],
}


def holding(keeper: type[Keeper], make: Make, wrap: Callable[[Any], Any]) -> Keeper:
    """Sends new records, whose part is a record that it may hold."""

    class Holding(keeper):  # type: ignore[misc, valid-type]
        def map(self, value: int) -> Any:
            return wrap(keeper.map(self, value))

        def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
            for record in keeper.process_element(self, value, ctx):
                yield wrap(record)

    return Holding(make)


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS.keys())
@pytest.mark.parametrize("keeper", KEEPERS, ids=lambda keeper: keeper.__name__)
@pytest.mark.parametrize("operator", [MapOperator, ProcessOperator])
def test_what_a_new_record_holds_does_not_change(
    operator: Any, keeper: type[Keeper], wrap: Callable[[Any], Any]
) -> None:
    for make in MAKERS:
        function = holding(keeper, make, wrap)
        output = run(operator(function), [Bundle([1, 2, 3]), Bundle([3, 4])])
        function.release()
        GLOBAL.clear()
        assert output.records == [wrap(function.make("a", value)) for value in (1, 2, 3, 3, 4)]


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS.keys())
@pytest.mark.parametrize("make", [kit.as_dict, as_list, kit.Plain, kit.Slots, as_row])
@pytest.mark.parametrize("operator", [MapOperator, ProcessOperator])
def test_a_part_that_only_a_new_record_holds_is_not_copied(
    operator: Any, make: Make, wrap: Callable[[Any], Any]
) -> None:
    function = Maker(lambda name, value: wrap(make(name, value)))
    output = run(operator(function), [Bundle([1, 2, 3])])
    is_held_twice = wrap is WRAPPERS["twice"]
    assert ([id(record) for record in output.records] == function.made) != is_held_twice


@pytest.mark.parametrize("make", [set, deque])
@pytest.mark.parametrize("wrap", [lambda part: part, lambda part: {"part": part}])
def test_what_weak_references_find_is_copied(make: Any, wrap: Callable[[Any], Any]) -> None:
    found: Any = weakref.WeakValueDictionary()

    def gathered(value: int) -> Any:
        values = found.get(value % 2)
        if values is None:
            values = found[value % 2] = make()
        (values.add if make is set else values.append)(value)
        return wrap(values)

    output = run(MapOperator(gathered), [Bundle([0, 1, 2, 3])])
    assert output.records == [wrap(make([value])) for value in range(4)]


class Node:
    """Compares by identity, so that it is a key although it can be changed."""

    def __init__(self) -> None:
        self.count = 0


def test_a_key_that_its_function_changes_is_copied() -> None:
    class Counting:
        def __init__(self) -> None:
            self.node = Node()

        def map(self, value: int) -> Any:
            self.node.count += 1
            return {self.node: [value]}

    records = run(MapOperator(Counting()), [Bundle([0, 1, 2])]).records
    assert [node.count for record in records for node in record] == [1, 2, 3]


def test_a_record_that_is_nested_deeply_is_sent() -> None:
    def nested(depth: int) -> list[Any]:
        found: list[Any] = []
        for _ in range(depth):
            found = [found]
        return found

    (found,) = run(MapOperator(nested), [Bundle([300])]).records
    for _ in range(300):
        (found,) = found
    assert found == []


class Maker:
    """Keeps nothing of a record but its id."""

    def __init__(self, make: Make) -> None:
        self.made: list[int] = []
        self._make = make

    def map(self, value: int) -> Any:
        return self._noted(value)

    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        yield self._noted(value)

    def _noted(self, value: int) -> Any:
        record = self._make("a", value)
        self.made.append(id(record))
        return record


@pytest.mark.parametrize("make", [kit.as_dict, as_list, kit.Plain, kit.Slots, as_row])
@pytest.mark.parametrize("operator", [MapOperator, ProcessOperator])
def test_a_new_record_that_nobody_holds_is_sent_as_it_is(operator: Any, make: Make) -> None:
    function = Maker(make)
    output = run(operator(function), [Bundle([1, 2, 3])])
    assert [id(record) for record in output.records] == function.made


class ListMaker(Maker):
    def process_element(self, value: int, ctx: Any) -> Any:
        return [self._noted(value), self._noted(-value)]


class KeptListMaker(ListMaker):
    """Has the list that it has returned, and what that held, but no more."""

    def process_element(self, value: int, ctx: Any) -> Any:
        self.kept = super().process_element(value, ctx)
        return self.kept


@pytest.mark.parametrize("make", [kit.as_dict, as_list, kit.Plain, kit.Slots, as_row])
def test_records_of_a_returned_list_that_nobody_holds_are_sent_as_they_are(make: Make) -> None:
    function = ListMaker(make)
    output = run(ProcessOperator(function), [Bundle([1, 2, 3])])
    assert output.records == [make("a", value) for value in (1, -1, 2, -2, 3, -3)]
    assert [id(record) for record in output.records] == function.made


@pytest.mark.parametrize("make", [kit.as_dict, as_list, kit.Plain, kit.Slots, as_row])
def test_a_returned_list_that_its_function_keeps_stays_as_it_is(make: Make) -> None:
    function = KeptListMaker(make)
    output = run(ProcessOperator(function), [Bundle([1, 2])])
    assert output.records == [make("a", value) for value in (1, -1, 2, -2)]
    assert function.kept == [make("a", 2), make("a", -2)]
    assert not any(sent is kept for sent in output.records for kept in function.kept)


def passing(keeper: type[Keeper], make: Make) -> Keeper:
    """Holds the records that it is given, and passes them on."""

    class Passing(keeper):  # type: ignore[misc, valid-type]
        def map(self, value: Any) -> Any:
            self.release()
            self.hold(value)
            return value

        def filter(self, value: Any) -> bool:
            self.release()
            self.hold(value)
            return True

    return Passing(make)


HOLDERS = [keeper for keeper in KEEPERS if keeper.hold is not Keeper.hold or keeper is Keeper]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("keeper", HOLDERS, ids=lambda keeper: keeper.__name__)
@pytest.mark.parametrize("operator", [MapOperator, FilterOperator])
def test_a_record_that_is_passed_on_does_not_change(
    operator: Any, keeper: type[Keeper], make: Make
) -> None:
    function = passing(keeper, make)
    bundles = [Bundle([make("a", value) for value in part]) for part in ([1, 2, 3], [3, 4])]
    output = run(operator(function), bundles)
    function.release()
    GLOBAL.clear()
    assert output.records == [make("a", value) for value in (1, 2, 3, 3, 4)]


def test_a_record_that_comes_twice_is_two_records() -> None:
    record = {"amount": 1}

    def counted(value: dict[str, int]) -> dict[str, int]:
        value["amount"] += 1
        return value

    records = [record, record]
    del record
    output = run(MapOperator(counted), [Bundle(records)])
    assert output.records == [{"amount": 2}, {"amount": 3}]


class Changer:
    """Changes its record, or a copy of it, by way of a variable."""

    def __init__(self) -> None:
        self.made: list[int] = []

    def filter(self, value: Any) -> bool:
        self.made.append(id(value))
        return True

    def map(self, value: Any) -> Any:
        self.made.append(id(value))
        return value


class VariableChanger(Changer):
    def map(self, value: Any) -> Any:
        changed = {**value, "new": 1}
        self.made.append(id(changed))
        return changed


class ParameterChanger(Changer):
    def map(self, value: Any) -> Any:
        value = {**value, "new": 1}
        self.made.append(id(value))
        return value


@pytest.mark.parametrize(
    ("operator", "function"),
    [
        (MapOperator, Changer()),
        (MapOperator, VariableChanger()),
        (MapOperator, ParameterChanger()),
        (FilterOperator, Changer()),
    ],
)
def test_a_record_that_only_the_function_had_is_sent_as_it_is(
    operator: Any, function: Changer
) -> None:
    function.made.clear()
    output = run(operator(function), [Bundle([kit.as_dict("a", value) for value in range(5)])])
    assert [id(record) for record in output.records] == function.made


def test_a_variable_that_holds_the_result_of_before_is_no_holder_of_this_one() -> None:
    """The parameter is assigned: what it holds is not the record of the list."""

    class Keeps:
        def __init__(self) -> None:
            self.last: Any = None

        def map(self, value: Any) -> Any:
            value = {"amount": value}
            if self.last is not None:
                self.last["amount"] = "spoiled"
            self.last = value
            return value

    output = run(MapOperator(Keeps()), [Bundle([1, 2, 3])])
    assert output.records == [{"amount": 1}, {"amount": 2}, {"amount": 3}]
