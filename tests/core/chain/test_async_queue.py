"""The queues of asynchronous calls against a plain model: what is out after every step."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import Bundle, StreamStatus, Watermark
from headgate.core.chain.async_queue import AsyncQueue, OrderedQueue, PendingCall, UnorderedQueue

CAPACITY = 6
BOTH = pytest.mark.parametrize("make", [OrderedQueue, UnorderedQueue])


def done(call: PendingCall, *results: Any) -> PendingCall:
    call.results = list(results)
    return call


def steps() -> st.SearchStrategy[list[tuple[str, int]]]:
    kinds = st.sampled_from(["admit", "complete", "complete", "watermark", "status"])
    return st.lists(st.tuples(kinds, st.integers(0, 5)), max_size=60)


class Model:
    """What went in, in order: records by number, notes; and which records have results."""

    def __init__(self, queue: AsyncQueue) -> None:
        self.queue = queue
        self.sent: list[int | Watermark | StreamStatus] = []
        self.calls: dict[int, PendingCall] = {}
        self.completed: list[int] = []
        self.out: list[Any] = []

    def step(self, kind: str, number: int) -> None:
        queue = self.queue
        if kind == "admit":
            count = min(number, queue.capacity - queue.size)
            first = len(self.calls)
            numbers = list(range(first, first + count))
            times: list[int | None] = [10 * n for n in numbers]
            for n, call in zip(numbers, queue.admit(numbers, times), strict=True):
                self.calls[n] = call
            self.sent += numbers
        elif kind == "complete":
            waiting = [n for n in self.calls if n not in self.completed]
            if waiting:
                chosen = waiting[number % len(waiting)]
                # Results tell their record, and how many there are differs: none, one or two.
                queue.completed([done(self.calls[chosen], *[chosen] * (chosen % 3))])
                self.completed.append(chosen)
        else:
            update = Watermark(len(self.sent)) if kind == "watermark" else StreamStatus(number > 2)
            queue.time_updated(update)
            self.sent.append(update)
        self.take()

    def take(self) -> None:
        for element in self.queue.release():
            if isinstance(element, Bundle):
                assert element.records and element.timestamps == [10 * n for n in element.records]
                self.out += element.records
            else:
                self.out.append(element)

    def parts(self) -> list[tuple[list[int], list[Watermark | StreamStatus]]]:
        """Records between notes, and the notes behind them, the last of each kind."""
        found: list[tuple[list[int], list[Watermark | StreamStatus]]] = [([], [])]
        for element in self.sent:
            if isinstance(element, int):
                if found[-1][1]:
                    found.append(([], []))
                found[-1][0].append(element)
            else:
                updates = [update for update in found[-1][1] if type(update) is not type(element)]
                found[-1] = (found[-1][0], [*updates, element])
        return found


@given(steps())
def test_ordered_results_leave_as_soon_as_all_before_them_have(script: list[Any]) -> None:
    check(OrderedQueue, script, ordered=True)


@given(steps())
def test_unordered_results_leave_at_once_but_cross_no_note(script: list[Any]) -> None:
    check(UnorderedQueue, script, ordered=False)


def check(make: Callable[[int], AsyncQueue], script: list[tuple[str, int]], ordered: bool) -> None:
    model = Model(make(CAPACITY))
    for kind, number in script:
        model.step(kind, number)
        if ordered:
            records = [element for element in model.out if isinstance(element, int)]
            assert records == sorted(records)
        assert_same_order_around_notes(model, ordered)
        gone = [n for n in model.completed if is_out(model, n, ordered)]
        assert model.queue.size == len(model.calls) - len(gone) <= CAPACITY
    while len(model.completed) < len(model.calls):
        model.step("complete", 0)
    assert model.queue.size == 0
    assert sorted(element for element in model.out if isinstance(element, int)) == sorted(
        n for n in model.calls for _ in range(n % 3)
    )
    assert model.queue.release() == []


def is_out(model: Model, number: int, ordered: bool) -> bool:
    """Whether nothing holds this completed record back."""
    waiting = [n for n in model.calls if n not in model.completed]
    if ordered:
        return not any(n < number for n in waiting)
    part = next(i for i, (records, _) in enumerate(model.parts()) if number in records)
    before = [n for records, _ in model.parts()[:part] for n in records]
    return not any(n in before for n in waiting)


def assert_same_order_around_notes(model: Model, ordered: bool) -> None:
    """Each note that is out has the same records before it as when it came in, all of them."""
    for place, element in enumerate(model.out):
        if isinstance(element, Watermark):  # their times tell them apart
            before = {n for n in model.sent[: model.sent.index(element)] if isinstance(n, int)}
            out_before = {n for n in model.out[:place] if isinstance(n, int)}
            assert out_before == {n for n in before if n % 3}
            after = [n for n in model.out[place:] if isinstance(n, int)]
            assert not before.intersection(after)
    completed = [n for n in model.completed if n % 3 and is_out(model, n, ordered)]
    assert {element for element in model.out if isinstance(element, int)} == set(completed)


@given(steps())
def test_the_last_watermark_and_status_of_each_gap_come_out(script: list[Any]) -> None:
    for make in (OrderedQueue, UnorderedQueue):
        model = Model(make(CAPACITY))
        for kind, number in script:
            model.step(kind, number)
        while len(model.completed) < len(model.calls):
            model.step("complete", 0)
        last = [n for n in model.sent if isinstance(n, Watermark)][-1:]
        assert [n for n in model.out if isinstance(n, Watermark)][-1:] == last
        statuses = [n for n in model.sent if isinstance(n, StreamStatus)][-1:]
        assert [n for n in model.out if isinstance(n, StreamStatus)][-1:] == statuses


@BOTH
def test_notes_after_a_record_that_waits_become_one_of_each_kind(make: Any) -> None:
    queue = make(1)
    (call,) = queue.admit(["a"], None)
    for time_ms in range(1000):
        queue.time_updated(Watermark(time_ms))
    queue.time_updated(StreamStatus(False))
    assert queue.release() == []
    queue.completed([done(call, "A")])
    assert queue.release() == [Bundle(["A"]), Watermark(999), StreamStatus(False)]


@BOTH
def test_a_status_keeps_its_place_after_or_before_a_watermark(make: Any) -> None:
    queue = make(1)
    (call,) = queue.admit(["a"], None)
    queue.time_updated(StreamStatus(False))
    queue.time_updated(StreamStatus(True))
    queue.time_updated(Watermark(7))
    queue.completed([done(call)])
    assert queue.release() == [StreamStatus(True), Watermark(7)]


@BOTH
def test_a_note_goes_through_when_nothing_waits(make: Any) -> None:
    queue = make(1)
    queue.time_updated(Watermark(1))
    assert queue.release() == [Watermark(1)]
    queue.time_updated(Watermark(2))
    assert queue.release() == [Watermark(2)]


@BOTH
def test_records_without_timestamps_leave_without(make: Any) -> None:
    queue = make(3)
    calls = queue.admit([1, 2], None)
    queue.completed([done(call, call.record) for call in calls])
    assert queue.release() == [Bundle([1, 2])]
    untimed, timed = queue.admit([3], None) + queue.admit([4], [9])
    queue.completed([done(untimed, 3), done(timed, 4)])
    assert queue.release() == [Bundle([3, 4], [None, 9])]


@BOTH
def test_more_than_the_capacity_is_a_bug(make: Any) -> None:
    queue = make(2)
    queue.admit([1], None)
    with pytest.raises(AssertionError, match="3 calls, 2 allowed"):
        queue.admit([2, 3], None)


def test_a_slot_is_completed_once() -> None:
    queue = UnorderedQueue(1)
    (call,) = queue.admit([1], None)
    queue.completed([done(call, 1)])
    with pytest.raises(AssertionError, match="twice"):
        queue.completed([call])


@BOTH
@given(st.lists(st.sampled_from(["admit", "note", "end", "release"])), st.data())
def test_what_is_held_is_all_that_has_not_left(make: Any, steps: list[str], data: Any) -> None:
    """A queue that admits what another one held lets go of the same, in an order of its law."""
    queue = make(4)
    left: list[Any] = []
    waiting: list[PendingCall] = []
    given: list[Any] = []
    for number, step in enumerate(steps):
        if step == "admit" and queue.size < queue.capacity:
            waiting += queue.admit([number], [number])
            given.append(number)
        elif step == "note":
            queue.time_updated(Watermark(number))
        elif step == "end" and waiting:
            call = waiting.pop(data.draw(st.integers(0, len(waiting) - 1)))
            queue.completed([done(call, call.record)])
        elif step == "release":
            left += [
                element for bundle in queue.release() for element in getattr(bundle, "records", ())
            ]
    held = queue.held()
    records = [record for some, _, _ in held for record in some]
    assert sorted(left + records) == given
    assert [time for _, times, _ in held for time in times] == records
    if make is OrderedQueue:
        assert left + records == given
    queue.completed([done(call, call.record) for call in waiting])
    rest = queue.release()
    updates = [element for element in rest if isinstance(element, Watermark)]
    assert [update for *_, some in held for update in some] == updates


def test_calls_that_have_left_are_not_kept_for_ever() -> None:
    queue = UnorderedQueue(2)
    for number in range(100):
        queue.completed([done(call, 1) for call in queue.admit([number], None)])
        queue.release()
    assert len(queue._segments[0].admitted) <= 3 * queue.capacity
