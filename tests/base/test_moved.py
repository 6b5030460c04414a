"""What an earlier release has pickled under names that are gone is read, and hashed as it was."""

import io
import pickle
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from types import ModuleType
from typing import Any

import pytest

from headgate.api.row import Row
from headgate.api.types.types import Types
from headgate.api.types.wires import PICKLED, TypedSerializer
from headgate.base import moved
from headgate.base.elements import PickleSerializer
from headgate.base.errors import StateBroken
from headgate.connectors.generator import IndexSplit
from headgate.core.operators.async_wait import read_calls
from headgate.core.operators.sinks import _read as read_committables
from headgate.core.operators.source_splits import identify_splits
from headgate.core.state.keys import key_bytes, stable_hash
from headgate.core.state.operator_state import OperatorStates
from headgate.core.state.snapshot import read_group, write_group
from headgate.functions.window import GlobalWindow, TimeWindow

OLD, NEW = "headgate.core.former", "headgate.core.later"


class Pair:
    """Moves from one module to the other."""

    class Side(Enum):
        LEFT = 0

    def __init__(self, first: object, second: object) -> None:
        self.first, self.second = first, second

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pair) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return 1

    def __reduce__(self) -> tuple[Any, ...]:
        return make_pair, (self.first, self.second)

    def __repr__(self) -> str:
        return f"Pair({self.first!r}, {self.second!r})"


def make_pair(first: object, second: object) -> Pair:
    return Pair(first, second)


VALUES = [Pair(1, "x"), [Pair(Pair.Side.LEFT, Pair), Pair(1, 2)], Pair.Side.LEFT, Pair]
THINGS = (Pair, Pair.Side, make_pair)


def place(module: str) -> None:
    """Let the things live in this module, and in no other."""
    for name in (OLD, NEW):
        sys.modules.pop(name, None)
    made = sys.modules[module] = ModuleType(module)
    made.Pair, made.make_pair = Pair, make_pair  # type: ignore[attr-defined]
    name = made.__name__
    for thing in THINGS:
        thing.__module__ = name


@pytest.fixture
def move(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """The things are in the old module; moves them to the new one, which the table knows."""
    homes = [thing.__module__ for thing in THINGS]
    place(OLD)

    def to_new() -> None:
        place(NEW)
        for name in ("Pair", "Pair.Side", "make_pair"):
            monkeypatch.setitem(moved.MOVED, f"{OLD}:{name}", f"{NEW}:{name}")
        monkeypatch.setattr(moved, "_FIRST", moved._first_names())

    yield to_new
    for module in (OLD, NEW):
        sys.modules.pop(module, None)
    for thing, home in zip(THINGS, homes, strict=True):
        thing.__module__ = home


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_pickle_is_read_after_its_class_has_moved(move: Callable[[], None], value: Any) -> None:
    data = pickle.dumps(value, 5)
    assert OLD.encode() in data
    move()
    assert moved.loads(data) == value
    assert moved.loads(memoryview(data)) == value


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("fast", [False, True])
def test_what_is_hashed_has_the_bytes_that_it_had(
    move: Callable[[], None], value: Any, fast: bool
) -> None:
    def written() -> bytes:
        target = io.BytesIO()
        pickler = pickle.Pickler(target, 5)
        pickler.fast = fast
        pickler.dump(value)
        return bytes(target.getvalue())

    before = written()
    move()
    assert written() != before
    assert moved.first_bytes(written(), value, fast) == before


def test_marks_key_groups_and_key_bytes_stay(move: Callable[[], None]) -> None:
    def seen() -> list[object]:
        marks = [marked.mark for marked in identify_splits(VALUES)]
        return [marks, [*map(stable_hash, VALUES)], [*map(key_bytes, VALUES)]]

    before = seen()
    move()
    assert seen() == before


def test_every_reader_of_files_finds_what_has_moved(move: Callable[[], None]) -> None:
    value = Pair(1, "x")
    calls = pickle.dumps([(value, 5)], 5)
    prepared = pickle.dumps((1, [value]), 5)
    group = write_group(3, 128, [("value", "v", TimeWindow(0, 5), value, value)])
    store = OperatorStates()
    store._enter("l", "split list")
    store._lists["l"].append(value)
    left = store.snapshot()
    element = PickleSerializer().dumps([value])
    move()
    assert list(read_calls([calls], 0, 1)) == [(value, 5)]
    assert read_committables(prepared) == [value]
    ((_, _, window, key, content),) = read_group(3, 128, group)
    assert (window, key, content) == (TimeWindow(0, 5), value, value)
    restored = OperatorStates()
    restored.restore([left], 0, 1)
    assert restored._lists["l"] == [value]
    assert PickleSerializer().loads(memoryview(element)) == [value]
    typed = TypedSerializer(Types.LONG())
    assert typed.loads(memoryview(PICKLED + element)) == [value]


def test_a_name_that_the_table_does_not_know_raises_what_it_always_did(
    move: Callable[[], None],
) -> None:
    gone = pickle.dumps(Pair, 5).replace(b"later", b"latex").replace(b"former", b"formed")
    move()
    known = pickle.dumps(Pair, 5).replace(b"Pair", b"Peir")
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'headgate\.core\.formed'"):
        moved.loads(gone)
    with pytest.raises(AttributeError, match="'Peir'"):
        moved.loads(known)
    with pytest.raises(StateBroken, match=r"headgate\.core\.formed"):
        read_committables(gone)


def test_an_old_module_does_not_hide_an_error_of_another_name(move: Callable[[], None]) -> None:
    data = pickle.dumps([Pair(1, 2), GlobalWindow()], 5).replace(b"GlobalWindow", b"GlobalDoor!!")
    move()
    with pytest.raises(AttributeError, match="GlobalDoor!!"):
        moved.loads(data)


def test_the_oldest_of_several_names_is_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    now = f"{__name__}:Pair"
    monkeypatch.setitem(moved.MOVED, "headgate.a:Pair", now)
    monkeypatch.setitem(moved.MOVED, "headgate.b:Couple", now)
    monkeypatch.setattr(moved, "_FIRST", moved._first_names())
    assert moved.first_name(Pair) == ("headgate.a", "Pair")
    for old in (b"cheadgate.a\nPair\n.", b"cheadgate.b\nCouple\n."):
        assert moved.loads(old) is Pair


@pytest.mark.parametrize(
    "value", [IndexSplit(0, 2), Row(a=1, b=Row(2)), GlobalWindow(), ("x" * 70_000, [1] * 2000)]
)
@pytest.mark.parametrize("fast", [False, True])
def test_the_pickler_for_former_names_writes_what_that_of_c_does(
    value: Any, fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moved, "_FIRST", {})  # nothing has moved yet
    written = []
    for kind in (pickle.Pickler, moved._Former):
        target = io.BytesIO()
        pickler = kind(target, 5)
        pickler.fast = fast
        pickler.dump(value)
        written.append(target.getvalue())
    assert written[0] == written[1]


def test_every_line_leads_to_something() -> None:
    for old, new in moved.MOVED.items():
        module, _, qualname = new.partition(":")
        found: object = __import__(module, fromlist=["_"])
        for part in qualname.split("."):
            found = getattr(found, part)
        parts = b"".join(b"\x8c%c%b" % (len(part), part.encode()) for part in old.split(":"))
        assert moved.loads(b"\x80\x05" + parts + pickle.STACK_GLOBAL + b".") is found
