"""Events survive their way to bytes and back; broken bytes are told apart. Rows 45, 143-147."""

import pickle
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.checkpoints import CheckpointKind, Stop
from headgate.base.errors import ElementBroken
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
    encode_event,
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
    st.text(max_size=9),
)


@dataclass(frozen=True)
class Slower(TaskEvent):
    """A user's own event."""

    per_second: int


TASK_EVENTS = st.builds(Slower, st.integers())


@given(RUNTIME_EVENTS | BARRIERS | TASK_EVENTS)
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
    with pytest.raises(ElementBroken, match="cannot be unpickled"):
        decode_event(whole[:size])


@pytest.mark.parametrize("data", [b"", b"\0", b"\6", b"\xff" * 18])
def test_bytes_with_no_known_tag_are_no_event(data: bytes) -> None:
    with pytest.raises(ElementBroken, match="are no event"):
        decode_event(data)


def test_a_task_event_that_holds_something_else_is_broken() -> None:
    data = encode_event(Slower(1))[:1] + pickle.dumps("not an event")
    with pytest.raises(ElementBroken, match="holds a str, not a TaskEvent"):
        decode_event(data)


@given(BARRIERS)
def test_a_barrier_is_found_among_other_events(barrier: CheckpointBarrier) -> None:
    assert barrier_in(encode_event(barrier)) == barrier
    assert barrier_in(memoryview(encode_event(barrier))) == barrier
    assert barrier.is_savepoint == (barrier.kind is CheckpointKind.SAVEPOINT)


@given(RUNTIME_EVENTS | TASK_EVENTS)
def test_other_events_are_no_barriers(event: Event) -> None:
    assert barrier_in(encode_event(event)) is None


@pytest.mark.parametrize("data", [b"\x09\x00", b"\x00\x09", b"\x00\x00\xff", b"\x00"])
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
