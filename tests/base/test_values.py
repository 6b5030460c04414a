"""Copies of instances equal what they are made of and share nothing that can be changed. Row 7."""

import functools
import pathlib
import pickle
import re
import sys
import threading
from array import array
from collections import ChainMap, Counter, OrderedDict, UserDict, defaultdict, deque
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.values import own
from tests.base import shape_kit as kit
from tests.core.chain.kit import spoil, values


@given(st.sampled_from([*kit.SHAPED, *kit.PICKLED]), values, values)
def test_a_copy_of_an_instance_is_equal_and_its_own(make: Any, name: Any, amount: Any) -> None:
    value = make(name, [amount])
    copy = own(value)
    assert type(copy) is type(value)
    assert copy == make(name, [amount])
    spoil(copy.name if hasattr(copy, "name") else None)
    held = copy["amount"] if make is kit.as_dict else getattr(copy, "amount", None)
    if held is not None:
        held.append("changed")
    assert value == make(name, [amount])


@pytest.mark.parametrize("make", [kit.Frozen, kit.FrozenSlots, kit.FrozenStruct, kit.Named])
def test_an_instance_that_nobody_can_change_stays_as_it_is(make: Any) -> None:
    value = make("a", 1)
    assert own(value) is value
    nested = make("a", (1, make("b", 2)))
    assert own(nested) == nested


def test_what_a_frozen_instance_has_beside_its_fields_is_copied() -> None:
    class Total(kit.Frozen):
        @cached_property
        def parts(self) -> list[int]:
            return [self.amount]

    value = Total("a", 1)
    value.parts.append(2)
    copy = own(value)
    assert copy.parts == [1, 2]
    assert copy.parts is not value.parts


def test_slots_that_are_empty_stay_empty() -> None:
    value = kit.MoreSlots("a", [1], "rest")
    del value.rest
    copy = own(value)
    assert (copy.name, copy.amount) == ("a", [1])
    assert copy.amount is not value.amount
    assert not hasattr(copy, "rest")


def test_an_instance_of_slots_and_a_dict_keeps_both() -> None:
    value = kit.DictOverSlots("a", [1])
    value.note = ["x"]  # type: ignore[attr-defined]
    copy: Any = own(value)
    assert (copy.name, copy.amount, copy.note) == ("a", [1], ["x"])
    assert copy.note is not value.note  # type: ignore[attr-defined]


def test_properties_are_not_run_for_a_copy() -> None:
    value = kit.Watched("a", [1])
    kit.Watched.calls.clear()
    copy = own(value)
    assert kit.Watched.calls == []
    assert vars(copy) == vars(value)


class Ring:
    def __init__(self) -> None:
        self.next = self
        self.items = [1]


def test_an_instance_that_holds_itself_is_copied_whole() -> None:
    ring = Ring()
    copy = own(ring)
    assert copy is not ring
    assert copy.next is copy
    assert copy.items is not ring.items


class Silent:
    """Says of nothing that it equals it, and has no hash."""

    def __init__(self) -> None:
        self.items = [1]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not to be compared")

    def __hash__(self) -> int:
        raise RuntimeError("not to be hashed")


def test_comparisons_and_hashes_are_not_asked_for() -> None:
    value = Silent()
    copy = own(value)
    assert copy.items == [1]
    assert copy.items is not value.items


def test_collections_of_the_library_are_copied_as_what_they_are() -> None:
    counts = defaultdict(list, {"a": [1]})
    copied = own(counts)
    assert copied == counts and copied.default_factory is list
    copied["a"].append(2)
    assert counts["a"] == [1]
    last = deque([[1], [2]], maxlen=2)
    mine = own(last)
    assert mine == last and mine.maxlen == 2
    mine[0].append(9)
    assert last[0] == [1]
    assert own({1, "a"}) == {1, "a"}
    assert own(bytearray(b"x")) == bytearray(b"x")


def test_arrays_of_numpy_are_copied_and_its_numbers_pass() -> None:
    array = numpy.arange(6).reshape(2, 3).T
    copy = own(array)
    assert (copy == array).all() and copy.flags.f_contiguous
    copy[0, 0] = 99
    assert array[0, 0] == 0
    objects = numpy.array([[1], None], dtype=object)
    inner = own(objects)
    inner[0].append(2)
    assert objects[0] == [1]
    number = numpy.float32(1.5)
    assert own(number) is number


def test_a_class_that_cannot_be_pickled_is_copied_all_the_same() -> None:
    class Local:
        __slots__ = ("items",)

        def __init__(self) -> None:
            self.items = [1]

    value = Local()
    assert own(value).items is not value.items


@dataclass(frozen=True)
class Counted:
    """Has a field that only its class holds, and an attribute that is made when it is asked for."""

    amount: int
    unit: str = field(init=False, default="pieces")

    @cached_property
    def parts(self) -> list[int]:
        return [self.amount]


@dataclass(frozen=True)
class Summed(kit.Frozen):
    @cached_property
    def parts(self) -> list[int]:
        return [self.amount]


@pytest.mark.parametrize("asked_before", [True, False])
@pytest.mark.parametrize("value", [Counted(1), Summed("a", 1)], ids=repr)
def test_what_a_frozen_instance_makes_later_is_its_own(value: Any, asked_before: bool) -> None:
    vars(value).pop("parts", None)
    if asked_before:
        assert value.parts == [1]
    copy = own(value)
    copy.parts.append(2)
    assert value.parts == [1]


class Children(list[Any]):
    pass


@dataclass(slots=True)
class Branch:
    parent: Any = None
    children: Any = None
    call: Any = None

    def name(self) -> str:
        return "branch"


@pytest.mark.parametrize(
    "gathered",
    [
        Children,
        lambda leaves: OrderedDict(enumerate(leaves)),
        lambda leaves: ChainMap(dict(enumerate(leaves))),
        lambda leaves: numpy.array([*leaves, None], dtype=object),
    ],
)
def test_what_is_held_through_a_class_with_its_own_pickling_leads_back(gathered: Any) -> None:
    root = Branch()
    root.children = gathered([Branch(parent=root)])
    copy = own(root)
    assert copy.children[0] is not root.children[0]
    assert copy.children[0].parent is copy
    assert type(copy.children) is type(root.children)


def test_a_method_that_an_instance_holds_is_bound_to_the_copy() -> None:
    value = Branch()
    value.call = value.name
    copy = own(value)
    assert copy.call.__self__ is copy
    assert copy is not value


def test_a_class_whose_class_answers_for_any_name_is_copied() -> None:
    class Answering(type):
        def __getattr__(cls, name: str) -> Any:
            return lambda *_: "made up"

    class Answered(metaclass=Answering):
        items: list[int]

    value = Answered()
    value.items = [1]
    copy = own(value)
    assert (type(copy), copy.items) == (Answered, [1])
    assert copy.items is not value.items


@dataclass(frozen=True, slots=True)
class Restored:
    """Is told when it is made from its state."""

    items: list[int]

    def __setstate__(self, state: Any) -> None:
        object.__setattr__(self, "items", [*state[0], 0])


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the dataclass replaces the method in 3.10")
def test_a_frozen_instance_that_takes_its_state_itself_is_given_it() -> None:
    assert own(Restored([1])).items == [1, 0]


def test_functions_are_passed_while_other_classes_are_forgotten() -> None:
    def double(number: int) -> int:
        return 2 * number

    for number in range(2000):
        made = type(f"Made{number}", (), {})()
        assert type(own(made)) is type(made)
        assert own({"call": double}) == {"call": double}


@pytest.mark.parametrize(
    "value",
    [
        pandas.Timestamp("2024-01-01", tz="Europe/Berlin"),
        pandas.NaT,
        pathlib.PurePosixPath("/a/b"),
        Counter("aab"),
        ValueError("text", 1),
        functools.partial(max, 1),
        array("d", [1.0]),
        re.compile("a+"),
        NotImplemented,
        UserDict(a=[1]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_classes_with_a_pickling_of_their_own_are_copied_as_pickle_would(value: Any) -> None:
    copy = own([value])[0]
    assert type(copy) is type(value)
    assert repr(copy) == repr(value)
    assert pickle.dumps(copy) == pickle.dumps(value)


def test_frames_of_pandas_are_copied() -> None:
    frame = pandas.DataFrame({"a": [1, 2], "b": ["x", [1]]})
    copy = own({"frame": frame})["frame"]
    pandas.testing.assert_frame_equal(copy, frame)
    copy.loc[0, "a"] = 9
    copy["b"][1].append(2)
    assert (frame["a"].tolist(), frame["b"].tolist()) == ([1, 2], ["x", [1]])


def test_a_part_that_cannot_be_pickled_is_named() -> None:
    with pytest.raises(TypeError, match=r"a record with a lock cannot be copied"):
        own({"lock": threading.Lock()})
