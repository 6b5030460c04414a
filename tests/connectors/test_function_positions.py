"""Source functions that keep their position in state: cut anywhere, nothing is lost or repeated."""

import pickle
import threading
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.base.elements import Bundle, Record, StreamStatus, Watermark
from headgate.connectors.function import (
    CheckpointLock,
    FunctionPosition,
    FunctionReader,
    FunctionSource,
    Handover,
)
from headgate.functions.context import SnapshotMoment
from headgate.functions.function import CheckpointedFunction, SourceFunction
from headgate.functions.state import ListStateDescriptor
from tests.connectors.kit import read_to_end, read_until, task_context

MOMENT = SnapshotMoment(7, 1000)


class Counting(SourceFunction[int], CheckpointedFunction):
    """Counts up to ``end``; what comes next is state. It tells a watermark now and then."""

    def __init__(self, end: int, pause: threading.Event | None = None) -> None:
        self.end = end
        self.pause = pause
        self.running = True
        self.log: list[Any] = []

    def initialize_state(self, context: Any) -> None:
        states = context.get_operator_state_store()
        self.state = states.get_list_state(ListStateDescriptor("next"))
        self.next = sum(self.state.get())
        self.log.append(("initialize", self.next))

    def snapshot_state(self, context: Any) -> None:
        self.state.update([self.next])
        self.log.append(("snapshot", context.get_checkpoint_id()))

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.log.append(("complete", checkpoint_id))

    def run(self, ctx: Any) -> None:
        while self.running and self.next < self.end:
            with ctx.get_checkpoint_lock():
                self.next += 1  # before or after the record: within the block it is all one
                ctx.collect(self.next - 1)
                if self.next % 5 == 0:
                    ctx.emit_watermark(Watermark(self.next))
            if self.pause is not None:
                self.pause.wait()

    def cancel(self) -> None:
        self.running = False
        if self.pause is not None:
            self.pause.set()

    def close(self) -> None:
        self.log.append("close")


def opened(
    function: Counting, position: FunctionPosition | None = None, queue_records: int = 4
) -> FunctionReader:
    return FunctionSource(function, queue_records=queue_records).open(0, position, task_context())


def carried(position: object) -> FunctionPosition:
    """Through the bytes of a checkpoint."""
    found = pickle.loads(pickle.dumps(position))
    assert isinstance(found, FunctionPosition)
    return found


def polled(reader: FunctionReader, limit: int) -> list[Record]:
    found = reader.poll(limit)
    assert found is not None
    if isinstance(found, Watermark | StreamStatus):
        return [found]
    return list(found.records if isinstance(found, Bundle) else found)


def all_of(end: int) -> list[Record]:
    return [
        element
        for number in range(end)
        for element in ([number, Watermark(number + 1)] if number % 5 == 4 else [number])
    ]


@settings(max_examples=20)
@given(st.lists(st.lists(st.integers(1, 9), max_size=4), max_size=4))
def test_a_function_with_state_goes_on_where_its_task_was(cuts: list[list[int]]) -> None:
    end, found = 40, list[Record]()
    position: FunctionPosition | None = None
    for limits in cuts:
        reader = opened(Counting(end), position)
        try:
            for limit in limits:
                if found and found[-1] == Watermark(end):
                    break
                found += polled(reader, limit)
            position = carried(reader.position_at(MOMENT))
        finally:
            reader.close()
    reader = opened(Counting(end), position)
    try:
        while (some := reader.poll(9)) is not None:
            found += [some] if isinstance(some, Watermark) else some  # type: ignore[operator, list-item]
            if some == []:
                threading.Event().wait(0.0005)
    finally:
        reader.close()
    assert found == all_of(end)


def test_before_its_first_poll_a_restored_function_leaves_what_it_was_given() -> None:
    reader = opened(Counting(40))
    read_until(reader, lambda records: len(records) >= 4)
    position = carried(reader.position_at(MOMENT))
    reader.close()
    again = opened(Counting(40), position)
    assert again.position_at(MOMENT) == position
    again.close()


def test_a_checkpoint_does_not_wait_for_room_in_the_queue() -> None:
    """The function waits for room, under the lock; the task, which would make room, takes it."""
    reader = opened(Counting(10_000), queue_records=2)
    read_until(reader, bool)
    for _ in range(20):
        position = reader.position_at(MOMENT)
        assert position is not None
        assert len(position.rows) <= 2 + 2, "what one block adds, a record and a watermark"
        polled(reader, 1)
    reader.close()


def test_a_checkpoint_comes_through_while_a_function_never_rests() -> None:
    function = Counting(10**9)
    reader = opened(function, queue_records=100_000)
    read_until(reader, bool)
    for _ in range(20):
        reader.position_at(MOMENT)
    assert function.log.count(("snapshot", 7)) == 20
    reader.close()


def test_after_its_end_a_function_is_not_run_again() -> None:
    function = Counting(3)
    reader = opened(function, queue_records=10)
    read_until(reader, lambda records: "close" in function.log)
    while reader.poll(10) is not None:
        pass
    reader.close()
    rest = FunctionPosition(None, ((1, None), (2, 5)), has_ended=True)
    never = Counting(3)
    again = opened(never, carried(rest))
    assert again.position_at(MOMENT) == rest
    assert read_to_end(again) == [1, 2]
    assert carried(again.position_at(MOMENT)) == FunctionPosition(has_ended=True)
    again.close()
    assert never.log == []


def test_what_is_in_the_queue_at_its_end_is_kept() -> None:
    function = Counting(3)
    reader = opened(function, queue_records=10)
    reader.poll(0)
    while "close" not in function.log:
        threading.Event().wait(0.001)
    position = carried(reader.position_at(MOMENT))
    assert position == FunctionPosition(None, ((0, None), (1, None), (2, None)), True)
    assert ("snapshot", 7) not in function.log, "it is closed"
    reader.close()


class Failing(Counting):
    def run(self, ctx: Any) -> None:
        ctx.collect(1)
        raise ValueError("broken pump")


def test_a_function_that_has_failed_leaves_nothing() -> None:
    function = Failing(3)
    reader = opened(function)
    with suppress(ValueError):
        reader.poll(0)
    while "close" not in function.log:
        threading.Event().wait(0.001)
    with pytest.raises(RuntimeError, match="has failed; no position is sound"):
        reader.position_at(MOMENT)
    reader.close()


def test_a_function_is_told_of_checkpoints_between_its_blocks() -> None:
    function = Counting(10_000)
    reader = opened(function)
    reader.checkpoint_completed(1)  # it has not begun
    read_until(reader, bool)
    reader.checkpoint_completed(2)
    reader.close()
    assert [entry for entry in function.log if entry[0] == "complete"] == [("complete", 2)]


class Plain(SourceFunction[int]):
    def run(self, ctx: SourceFunction.SourceContext) -> None:
        with ctx.get_checkpoint_lock(), ctx.get_checkpoint_lock():
            ctx.collect(1)

    def cancel(self) -> None:
        pass


def test_a_function_without_state_cannot_rewind() -> None:
    source = FunctionSource(Plain())
    assert not source.rewinds
    assert FunctionSource(Counting(1)).rewinds
    reader = source.open(0, None, task_context())
    assert read_to_end(reader) == [1]
    assert reader.position_at(MOMENT) is None
    reader.close()


rows = st.lists(
    st.one_of(
        st.tuples(st.integers(), st.none() | st.integers()),
        st.builds(Watermark, st.integers(0, 9)),
        st.booleans().map(StreamStatus),
    )
)


@given(rows, st.lists(st.integers(1, 4)))
def test_rows_of_a_queue_are_what_was_put_and_not_taken(put: list[Any], limits: list[int]) -> None:
    handover = Handover(1000, put[: len(put) // 2])
    for row in put[len(put) // 2 :]:
        if isinstance(row, tuple):
            handover.put(*row)
        else:
            handover.say(row)
    taken: list[Any] = []
    for limit in limits:
        found = handover.take(limit)
        if isinstance(found, Bundle):
            taken += zip(found.records, found.timestamps or (), strict=True)
        elif isinstance(found, list):
            taken += [(record, None) for record in found]
        else:
            taken.append(found)
    assert taken + handover.rows() == put


def test_a_checkpoint_waits_for_the_block_that_runs_and_goes_before_the_next() -> None:
    lock = CheckpointLock()
    order: list[str] = []
    inside, leave = threading.Event(), threading.Event()

    def blocks() -> None:
        with lock:
            inside.set()
            leave.wait()
            order.append("block")
        with lock:
            order.append("next block")

    thread = threading.Thread(target=blocks)
    thread.start()
    inside.wait()

    class Leaving:
        def __enter__(self) -> None:
            leave.set()  # the checkpoint has come by now

        def __exit__(self, *error: object) -> None: ...

    with lock.ahead(Leaving()):  # type: ignore[arg-type]
        order.append("checkpoint")
    thread.join()
    assert order == ["block", "checkpoint", "next block"]
