"""Events survive their way to bytes and back; broken bytes are told apart. Rows 45, 143-147.

Values of task events come back equal, with equal types; bytes never make but plain data.
"""

import contextlib
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.checkpoints import CheckpointKind, Stop
from headgate.base.errors import ElementBroken, EventUnsendable
from headgate.base.events import (
    END_OF_PARTITION,
    END_OF_SUPERSTEP,
    CancelMarker,
    CheckpointBarrier,
    Event,
    RuntimeEvent,
    TaskEvent,
    barrier_in,
    decode_event,
    decode_task_event,
    encode_event,
    event_class_name,
    pack_values,
    split_task_event,
    unpack_values,
)

INT64 = st.integers(-(2**63), 2**63 - 1)
RUNTIME_EVENTS = (
    st.just(END_OF_PARTITION) | st.just(END_OF_SUPERSTEP) | st.builds(CancelMarker, INT64)
)
BARRIERS = st.builds(
    CheckpointBarrier,
    INT64,
    INT64,
    st.booleans(),
    st.sampled_from(CheckpointKind),
    st.sampled_from(Stop),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9),
)


@dataclass(frozen=True)
class Slower(TaskEvent):
    """A user's own event."""

    per_second: int


TASK_EVENTS = st.builds(Slower, st.integers())


@given(RUNTIME_EVENTS | BARRIERS)
def test_an_event_comes_back_as_it_went(event: Event) -> None:
    data = encode_event(event)
    for form in (data, bytearray(data), memoryview(data)):
        decoded = decode_event(form)
        assert type(decoded) is type(event)
        assert decoded == event


@given(RUNTIME_EVENTS, st.data())
def test_a_runtime_event_that_is_too_short_or_too_long_is_broken(
    event: RuntimeEvent, data: st.DataObject
) -> None:
    whole = encode_event(event)
    size = data.draw(st.integers(0, 2 * len(whole)).filter(lambda n: n != len(whole)))
    with pytest.raises(ElementBroken, match=f"{size} bytes with tag"):
        decode_event((whole * 2)[:size])


@given(TASK_EVENTS, st.data())
def test_a_task_event_that_is_cut_off_is_broken(event: TaskEvent, data: st.DataObject) -> None:
    whole = encode_event(event)
    size = data.draw(st.integers(1, len(whole) - 1))
    with pytest.raises(ElementBroken):
        task_event(whole[:size], type(event))


@pytest.mark.parametrize("data", [b"", b"\0", b"\6", b"\xff" * 18])
def test_bytes_with_no_known_tag_are_no_event(data: bytes) -> None:
    with pytest.raises(ElementBroken, match="are no event"):
        decode_event(data)


def task_event(data: bytes, kind: type[TaskEvent]) -> TaskEvent:
    """As the producer's side reads it, where this class is subscribed for."""
    parts = split_task_event(data)
    assert parts is not None
    name, body = parts
    if name != event_class_name(kind):
        raise ElementBroken(f"nobody wants {name}")
    return decode_task_event(kind, body)


class Slotted(TaskEvent):
    __slots__ = ("__hidden", "shown", "unset")

    def __init__(self, shown: object, hidden: object) -> None:
        self.shown = shown
        self.__hidden = hidden

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Slotted) and self.facts() == other.facts()

    def facts(self) -> tuple[object, object, bool]:
        return self.shown, self.__hidden, hasattr(self, "unset")


class Struct(TaskEvent, msgspec.Struct):
    texts: tuple[str, ...]


@dataclass
class Mixed(Slotted):
    more: dict[int, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__({"a"}, frozenset({(1, b"x")}))


class OwnForm(TaskEvent):
    """Holds what is no plain data, and says how it travels."""

    def __init__(self, kind: type) -> None:
        self.kind = kind

    def to_bytes(self) -> bytes:
        return self.kind.__name__.encode()

    @classmethod
    def from_bytes(cls, data: memoryview) -> "OwnForm":
        return cls({"int": int, "str": str}[bytes(data).decode()])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnForm) and other.kind is self.kind


@pytest.mark.parametrize(
    "event",
    [
        Slower(7),
        Slower(-(2**200)),
        Slotted((1, None, True), [{"k": (2.5, "é")}]),
        Struct(("a", "b")),
        Mixed({1: [1.0], -5: []}),
        OwnForm(int),
    ],
)
def test_a_task_event_comes_back_as_it_went(event: TaskEvent) -> None:
    back = task_event(encode_event(event), type(event))
    assert type(back) is type(event)
    assert back == event


@given(TASK_EVENTS, st.data())
def test_bytes_of_a_task_event_never_make_anything_but_one(
    event: TaskEvent, data: st.DataObject
) -> None:
    whole = bytearray(encode_event(event))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(1, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ElementBroken):
        assert type(task_event(bytes(whole), Slower)) is Slower


def test_a_task_event_of_what_is_no_plain_data_is_refused_where_it_is_sent() -> None:
    with pytest.raises(EventUnsendable, match="'per_second' holds a Slower.*to_bytes") as caught:
        encode_event(Slower(Slower(1)))  # type: ignore[arg-type]
    assert (caught.value.event, caught.value.attribute) == ("Slower", "per_second")
    with pytest.raises(EventUnsendable, match="a dict with a tuple as key"):
        encode_event(Slower({(1,): 2}))  # type: ignore[arg-type]


@pytest.mark.parametrize("raised", [SystemExit(3), ValueError("no")])
def test_a_class_that_cannot_read_its_event_is_named(raised: BaseException) -> None:
    class Picky(TaskEvent):
        @classmethod
        def from_bytes(cls, data: memoryview) -> "Picky":
            raise raised

    with pytest.raises(ElementBroken, match="task event Picky cannot be read"):
        decode_task_event(Picky, memoryview(b""))


def test_a_class_that_makes_something_else_of_an_event_is_named() -> None:
    class Liar(TaskEvent):
        @classmethod
        def from_bytes(cls, data: memoryview) -> "Liar":
            return Slower(1)  # type: ignore[return-value]

    with pytest.raises(ElementBroken, match="Liar made a Slower"):
        decode_task_event(Liar, memoryview(b""))


@pytest.mark.parametrize("name", ["other", "__class__", "a b"])
def test_an_event_gets_no_attribute_that_its_class_has_not(name: str) -> None:
    body = msgspec.msgpack.encode({name: 1})
    with pytest.raises(ElementBroken, match="no attribute"):
        decode_task_event(Slotted, memoryview(body))


def test_a_task_event_among_the_data_is_broken() -> None:
    with pytest.raises(ElementBroken, match="travel to producers only"):
        decode_event(encode_event(Slower(1)))
    assert split_task_event(encode_event(END_OF_PARTITION)) is None
    assert split_task_event(b"") is None


@given(BARRIERS)
def test_a_barrier_is_found_among_other_events(barrier: CheckpointBarrier) -> None:
    assert barrier_in(encode_event(barrier)) == barrier
    assert barrier_in(memoryview(encode_event(barrier))) == barrier
    assert barrier.is_savepoint == (barrier.kind is CheckpointKind.SAVEPOINT)


@given(RUNTIME_EVENTS | TASK_EVENTS)
def test_other_events_are_no_barriers(event: Event) -> None:
    assert barrier_in(encode_event(event)) is None


@pytest.mark.parametrize(
    "data", [b"\x09\x00", b"\x00\x09", b"\x00\x00\xff", b"\x00", b"\x00\x00a\0b"]
)
def test_a_broken_barrier_is_an_error_for_its_reader_and_nothing_for_who_looks_for_it(
    data: bytes,
) -> None:
    broken = encode_event(CheckpointBarrier(1, 2))[:-2] + data
    assert barrier_in(broken) is None
    with pytest.raises(ElementBroken):
        decode_event(broken)


def test_an_unaligned_barrier_is_another_barrier() -> None:
    assert encode_event(CheckpointBarrier(1, 2)) != encode_event(CheckpointBarrier(1, 2, True))


def test_runtime_events_are_no_task_events() -> None:
    runtime = [END_OF_PARTITION, END_OF_SUPERSTEP, CheckpointBarrier(1, 2), CancelMarker(1)]
    assert not any(isinstance(event, TaskEvent) for event in runtime)
    assert all(isinstance(event, RuntimeEvent) for event in runtime)


ATOMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=5)
)
KEYS = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5)
VALUES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.sets(ATOMS, max_size=3)
        | st.frozensets(ATOMS, max_size=3)
    ),
    max_leaves=8,
)
PLAIN = (type(None), bool, int, float, str, bytes, list, tuple, dict, set, frozenset)


def types_in(value: object) -> object:
    if isinstance(value, dict):
        return [(type(key), types_in(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [types_in(item) for item in value]
    return type(value)


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=3))
def test_values_come_back_equal_and_of_the_same_types(values: dict[str, object]) -> None:
    back = unpack_values(pack_values("Event", values))
    assert back == values
    assert types_in(back) == types_in(values)


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=3), st.data())
def test_damaged_bytes_are_plain_data_or_broken(
    values: dict[str, object], data: st.DataObject
) -> None:
    whole = bytearray(pack_values("Event", values))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        back = unpack_values(bytes(whole))
    except ElementBroken:
        return
    assert all(type(name) is str for name in back)


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize("value", [object(), Text("x"), print, 1j, {1: {2: object()}}, "\ud800"])
def test_other_values_are_refused_by_name(value: object) -> None:
    with pytest.raises(EventUnsendable, match="attribute 'second'"):
        pack_values("Event", {"first": 1, "second": value})


def test_a_value_that_holds_itself_is_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(EventUnsendable):
        pack_values("Event", {"endless": endless})
