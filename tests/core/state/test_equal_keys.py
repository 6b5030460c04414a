"""Equal keys of different kinds have one group, the same bytes and one place in a dictionary."""

import uuid
from array import array
from collections import UserString, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from functools import cached_property
from itertools import product
from pathlib import PosixPath, PurePosixPath
from typing import Any, Generic, TypeVar
from zoneinfo import ZoneInfo

import attrs
import numpy as np
import pandas as pd
import pydantic
import pydantic.v1
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import Key
from headgate.core.state.keys import freeze, key_bytes, key_group, stable_hash

Pair = namedtuple("Pair", "first second")
BERLIN = ZoneInfo("Europe/Berlin")


class Whole(IntEnum):
    ONE = 1


class Word(str, Enum):
    RED = "red"


class Share(float, Enum):
    HALF = 0.5


class Day(date, Enum):
    FIRST = 2024, 1, 1


class Stamp(datetime):
    """As libraries of dates have them."""


class Count(int):
    pass


@dataclass(frozen=True)
class Holder:
    value: object

    @cached_property
    def text(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Slotted:
    value: object
    note: str = field(default="", compare=False)


@dataclass(frozen=True)
class Noted:
    value: int
    note: str = field(default="", compare=False)


class Sensor(pydantic.BaseModel, frozen=True):
    """Notes which fields were set, and does not compare that."""

    name: str
    unit: str = "C"

    @cached_property
    def label(self) -> str:
        return f"{self.name} in {self.unit}"


class OldSensor(pydantic.v1.BaseModel):
    name: str
    unit: str = "C"

    class Config:
        frozen = True
        extra = "allow"


T = TypeVar("T")


class Boxed(pydantic.BaseModel, Generic[T], frozen=True):
    value: T


class Loose(pydantic.BaseModel, frozen=True, extra="allow"):
    name: str


@attrs.frozen
class Place:
    name: str = attrs.field(eq=str.lower)
    note: str = attrs.field(default="", eq=False)


@attrs.frozen(slots=False)
class OpenPlace:
    name: str = attrs.field(eq=str.lower)
    note: str = attrs.field(default="", eq=False)


def read_label(sensor: Sensor) -> Sensor:
    assert sensor.label
    return sensor


def in_zone(hours: float, *fields: int) -> datetime:
    moment = datetime(*fields, tzinfo=timezone.utc)  # type: ignore[arg-type, misc]
    return moment.astimezone(timezone(timedelta(hours=hours)))


def at_offset(hours: float, *fields: int) -> time:
    return time(*fields, tzinfo=timezone(timedelta(hours=hours)))  # type: ignore[arg-type, misc]


def read(holder: Holder) -> Holder:
    assert holder.text
    return holder


EQUAL: list[list[Key]] = [
    [1, True, 1.0, Decimal("1.0"), Fraction(1), 1 + 0j, Whole.ONE, Count(1), np.True_, np.int8(1),
     np.uint64(1), np.float16(1), np.float32(1), np.float64(1), np.longdouble(1), np.complex64(1)],
    [0, -0.0, 0.0, False, Decimal("-0"), 0j, complex(-0.0, -0.0), np.False_, np.float32(-0.0)],
    [0.5, Decimal("0.50"), Fraction(1, 2), 0.5 + 0j, Share.HALF, np.float16(0.5), np.float32(0.5)],
    [float(np.float32(0.1)), np.float32(0.1), Fraction(float(np.float32(0.1)))],
    [-3, -3.0, Decimal("-3e0"), np.int64(-3), complex(-3)],
    [10**400, Decimal("1e400"), Fraction(10**400)],
    [-7 * 10**400, Decimal("-7e400")],
    [2**70, 2.0**70, Decimal(2**70), np.float64(2**70), np.float32(2.0**70)],
    [Fraction(1, 10**400), Decimal("1e-400")],
    [float("inf"), Decimal("inf"), np.float32("inf"), complex("inf")],
    [1 + 2j, np.complex64(1 + 2j), np.complex128(1 + 2j)],
    ["red", Word.RED, np.str_("red")],
    [b"a", np.bytes_(b"a")],
    [in_zone(0, 2024, 1, 1), in_zone(1, 2024, 1, 1), in_zone(-5.5, 2024, 1, 1),
     datetime(2024, 1, 1, 1, tzinfo=BERLIN), pd.Timestamp("2024-01-01T00:00Z"),
     pd.Timestamp("2024-01-01T01:00", tz="Europe/Berlin").as_unit("s"),
     Stamp(2024, 1, 1, tzinfo=timezone(timedelta(0), "zero"))],
    [datetime(1, 1, 1, 0, 30, tzinfo=timezone(timedelta(hours=1))),
     datetime(1, 1, 1, 1, 30, tzinfo=timezone(timedelta(hours=2)))],
    [datetime(2024, 1, 1), datetime(2024, 1, 1, fold=1), Stamp(2024, 1, 1),
     pd.Timestamp(2024, 1, 1), np.datetime64("2024-01-01T00", "us")],
    [datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN),
     datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1)],
    [np.datetime64("2024-01-01"), np.datetime64("2024-01-01T00:00"), np.datetime64("2024-01", "M")],
    [pd.Timestamp(1, tz="UTC"), pd.Timestamp(1, tz="Asia/Tokyo")],
    [np.datetime64(1, "ns"), np.datetime64(1000, "ps")],
    [np.datetime64(10**6, "Y"), np.datetime64(12 * 10**6, "M")],
    [timedelta(seconds=1), pd.Timedelta(1, "s"), np.timedelta64(1, "s"),
     np.timedelta64(1000, "ms")],
    [date(2024, 1, 1), Day.FIRST],
    [time(0, 30), time(0, 30, fold=1), time(0, 30, tzinfo=BERLIN)],
    [at_offset(0, 12), at_offset(1, 13), at_offset(-5.5, 6, 30)],
    [at_offset(1, 0, 30), at_offset(2, 1, 30)],
    [timezone.utc, timezone(timedelta(0)), timezone(timedelta(0), "zero")],
    [uuid.UUID(int=5), uuid.UUID(int=5, is_safe=uuid.SafeUUID.safe)],
    [range(0), range(1, 1), range(-5)],
    [range(0, 10, 3), range(0, 12, 3)],
    [range(4, 5), range(4, 6, 2)],
    [Noted(1), Noted(1, "a"), Noted(True)],
    [Slotted(1), Slotted(1.0, "a")],
    [Holder("x"), read(Holder("x"))],
    [PurePosixPath("a/b"), PosixPath("a//b")],
    ["a", UserString("a")],
    [Sensor(name="a"), Sensor(name="a", unit="C"), read_label(Sensor(name="a"))],
    [Boxed[int](value=1), Boxed[float](value=1), Boxed(value=1)],
    [Loose(name="a", more=1), Loose(more=True, name="a")],
    [OldSensor(name="a"), OldSensor(name="a", unit="C")],
    [Place("a"), Place("A", "a note")],
    [OpenPlace("a"), OpenPlace("A", "a note")],
]  # fmt: skip

ALIKE: list[list[Key]] = [
    [b"a", bytearray(b"a")],
    [frozenset({1, 2}), {1, 2}, {1: 0, 2.0: 0}.keys()],
    [(1, b"a"), (1.0, bytearray(b"a")), Pair(1, bytearray(b"a"))],
    [{"a": 1}, {"a": True}],
    [[1, 2], [1.0, 2]],
    [("a", [1]), Pair("a", [1.0])],
    [deque([1, 2]), deque([1.0, 2], maxlen=2)],
    [array("i", [1]), array("d", [1])],
]
"""Some of them cannot be hashed."""

HOLDERS: list[Callable[[Key], Key]] = [
    lambda key: key,
    lambda key: ("a", key),
    lambda key: Pair(key, None),
    lambda key: frozenset({key, "a"}),
    lambda key: ((1, key), 2),
    Holder,
    Slotted,
]


def names(keys: list[Key]) -> str:
    return repr(keys[0])


@pytest.mark.parametrize("keys", EQUAL, ids=names)
def test_keys_that_a_dictionary_takes_for_one_go_to_one_task_and_one_state(keys: list[Key]) -> None:
    for hold in HOLDERS:
        key = hold(keys[0])
        for other in map(hold, keys):
            assert key == other, "so the table says"
            assert hash(key) == hash(other), "so the table says"
            assert stable_hash(key) == stable_hash(other), (key, other)
            assert key_bytes(key) == key_bytes(other), (key, other)
            assert {freeze(key): 1}[freeze(other)] == 1, (key, other)
            assert {freeze(other): 1}[freeze(key)] == 1, (key, other)


@pytest.mark.parametrize("keys", ALIKE, ids=names)
def test_equal_keys_of_which_some_cannot_be_hashed_have_one_state_too(keys: list[Key]) -> None:
    for key, other in product(keys, keys):
        assert key == other, "so the table says"
        assert stable_hash(key) == stable_hash(other), (key, other)
        assert key_bytes(freeze(key)) == key_bytes(freeze(other)), (key, other)
        assert {freeze(key): 1}[freeze(other)] == 1, (key, other)


numbers = st.one_of(
    st.integers(-(2**66), 2**66),
    st.booleans(),
    st.floats(allow_nan=False, width=16),
    st.decimals(allow_nan=False, places=2),
    st.fractions(max_denominator=8),
)


@st.composite
def equals(draw: st.DrawFn) -> tuple[Key, Key]:
    """Two keys of different kinds that may be equal."""
    if draw(st.booleans()):
        zones = st.sampled_from([timezone(timedelta(minutes=at)) for at in range(-840, 841, 15)])
        moment = draw(st.datetimes(timezones=st.just(timezone.utc)))
        try:
            return moment.astimezone(draw(zones)), moment.astimezone(draw(zones))
        except OverflowError:
            return moment, moment
    number = draw(numbers)
    kinds: list[Callable[[Any], Key]] = [
        *(
            int,
            float,
            complex,
            Decimal,
            Fraction,
            np.float16,
            np.float32,
            np.float64,
            np.longdouble,
        ),
        *(np.complex64, np.int64, np.uint8, np.bool_, bool),
    ]
    made = []
    for make in (draw(st.sampled_from(kinds)), draw(st.sampled_from(kinds))):
        try:
            with np.errstate(all="ignore"):
                made.append(make(number))
        except (OverflowError, ValueError, TypeError):
            made.append(number)
    return made[0], made[1]


def are_one(key: Key, other: Key) -> bool:
    """Whether a dictionary takes them for one key."""
    try:
        return bool(key == other) and hash(key) == hash(other)
    except TypeError:  # numpy compares whole numbers with no Decimal
        return False


@given(equals(), st.sampled_from(HOLDERS), st.sampled_from([1, 7, 128, 32_768]))
def test_equal_keys_have_the_same_group(
    pair: tuple[Key, Key], hold: Callable[[Key], Key], most: int
) -> None:
    key, other = map(hold, pair)
    if are_one(key, other):
        assert key_group(key, most) == key_group(other, most)
        assert key_bytes(key) == key_bytes(other)
        assert {freeze(key): 1}[freeze(other)] == 1


DIFFERENT: list[Key] = [
    *(1j, 1 + 1j, np.datetime64("2024-01-01"), np.datetime64(1, "ns"), np.datetime64(2, "ns")),
    *(pd.Timestamp(1), pd.Timestamp(2), pd.Timedelta(1), pd.Timedelta(2), timedelta(1), date.min),
    *(np.timedelta64(1, "M"), np.timedelta64(2, "D"), np.timedelta64(10**15, "s")),
    *(datetime(2024, 1, 1, 12), in_zone(0, 2024, 1, 1), time(1), at_offset(0, 1), at_offset(3, 1)),
    *(range(2), range(1, 2), Decimal("1e400"), Decimal("2e400"), Noted(1), Noted(2), Slotted(1)),
    *(Sensor(name="a"), Sensor(name="b"), Boxed(value=1), Boxed(value=2), Loose(name="a")),
    *(
        Loose(name="a", more=1),
        OldSensor(name="a"),
        OldSensor(name="a", more=1),
        Place("a"),
        Place("b"),
        OpenPlace("a"),
        array("i"),
        deque(),
    ),
    *(PurePosixPath("a"), PurePosixPath("b")),
    *(datetime(1, 1, 1, tzinfo=BERLIN), pd.NaT, timezone.utc, timezone(timedelta(hours=1))),
]


def test_different_keys_have_different_bytes() -> None:
    for key, other in product(DIFFERENT, DIFFERENT):
        assert (key_bytes(key) == key_bytes(other)) is (key is other), (key, other)


def test_local_times_that_come_twice_or_never_equal_no_moment_of_another_zone() -> None:
    twice = datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN)
    never = datetime(2024, 3, 31, 2, 30, tzinfo=BERLIN)
    for key in (twice, never):
        moment = key.astimezone(timezone.utc)
        assert key != moment
        assert key_bytes(key) != key_bytes(moment)
        assert key_bytes(key) == key_bytes(key.replace(fold=1))


def test_a_huge_exponent_costs_a_group_no_time() -> None:
    assert stable_hash(Decimal("7e999999")) == stable_hash(7 * 10**999999)
    assert stable_hash(Decimal("1e999999999999999999")) in range(2**32)


@pytest.mark.timeout(20)
def test_no_exponent_costs_a_key_time() -> None:
    """A record from outside may bring any; as a fraction they would fill the memory."""
    far = [Decimal(f"{number}e{sign}{10**17}") for number in (7, -7, 8) for sign in ("", "-")]
    far += [Decimal("7e100000001"), Decimal("7e-100000001")]
    for key, other in product(far, far):
        assert (key_bytes(key) == key_bytes(other)) is (key is other), (key, other)
        assert stable_hash((1, key)) in range(2**32)
    for key, other in (
        ("70e99", "7e100"),
        ("7.0e-999999", "70e-1000000"),
        ("-70e999999", "-7e1000000"),
    ):
        assert key_bytes(Decimal(key)) == key_bytes(Decimal(other))
        assert stable_hash(Decimal(key)) == stable_hash(Decimal(other))
    for zero in (Decimal("0e99999999"), Decimal("-0e-99999999")):
        assert key_bytes(zero) == key_bytes(0)
        assert stable_hash(zero) == stable_hash(0)
    long = Decimal("7" + "0" * 200_000)
    assert key_bytes(long) == key_bytes(Decimal("7e200000"))
    assert stable_hash(long) == stable_hash(Decimal("7e200000")) == stable_hash(7 * 10**200_000)
