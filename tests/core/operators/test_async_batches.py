"""The operator that waits, with calls in batches: order, watermarks, checkpoints, failures."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import Bundle, Watermark
from headgate.base.errors import UserFunctionFailed
from headgate.core.chain.async_calls import AsyncWork, BatchSettings, BatchWork
from headgate.core.chain.async_queue import PendingCall
from headgate.core.chain.batch_scheduler import BatchScheduler, CallBatch
from headgate.core.operators.async_wait import AsyncWaitOperator
from headgate.functions.async_functions import Batching, CallCache, RateLimit, RateLimited
from headgate.functions.time import Time
from tests.core.chain.batch_kit import Negate
from tests.core.chain.kit import context, run
from tests.core.chain.restore_kit import StoredState, restored, stored_state
from tests.core.operators.kit import BOTH, OutputInOrder

BATCHES = BatchSettings(
    Batching(3, Time.milliseconds(10), max_calls=2),
    RateLimit(100, burst=Time.milliseconds(0)),
    CallCache(Time.milliseconds(30), lambda number: number // 2),
)


class HandedCalls:
    """Real scheduling, with time and ends of calls in the test's hand."""

    def __init__(self, work: BatchWork, completed: Callable[[], None]) -> None:
        self.scheduler = BatchScheduler(work)
        self.completed = completed
        self.now_ms = 0.0
        self.called: list[CallBatch] = []
        self.ended: list[PendingCall] = []

    def submit(self, slots: list[PendingCall]) -> None:
        self.scheduler.submitted(slots, self.now_ms)
        self.advance()

    def input_ended(self) -> None:
        self.scheduler.input_ended()
        self.advance()

    def advance(self, ms: float = 0.0) -> None:
        self.now_ms += ms
        self.called += self.scheduler.advance(self.now_ms).begin
        self.ended += self.scheduler.take_answered()

    def end(self, place: int = 0, error: Exception | None = None) -> None:
        batch = self.called.pop(place % len(self.called))
        if error is not None:
            self.scheduler.failed(batch, error, self.now_ms)
        else:
            self.scheduler.succeeded(batch, [f"r{n // 2}" for n in batch.values()], self.now_ms)
        self.advance()

    def wait_until(self, ready: Callable[[], bool]) -> None:
        while not ready():
            if self.called:
                self.end()
            else:
                assert self.scheduler.wake_ms is not None
                self.advance(max(0.0, self.scheduler.wake_ms - self.now_ms))

    def has_completed(self) -> bool:
        return bool(self.ended)

    def take(self) -> list[PendingCall]:
        ended, self.ended = self.ended, []
        return ended

    def run(self, action: Callable[[], Any]) -> Any:
        return action()

    def figures(self) -> Any:
        return self.scheduler.figures(self.now_ms)

    def close(self) -> None:
        pass


class BatchBench:
    """An open operator with calls in batches; perhaps it goes on from stored states."""

    def __init__(
        self, ordered: bool, states: tuple[StoredState, ...] = (), task: int = 0, tasks: int = 1
    ) -> None:
        self.operator = AsyncWaitOperator(Negate(), 1000, 5, ordered, None, BATCHES)
        self.output = OutputInOrder()
        self.operator.set_up(self.output)
        self.calls: HandedCalls

        def start(work: AsyncWork | BatchWork, completed: Callable[[], None]) -> HandedCalls:
            assert isinstance(work, BatchWork)
            self.calls = HandedCalls(work, completed)
            return self.calls

        within = context(subtask=task, parallelism=tasks)
        if states:
            within = replace(within, restored=restored(list(states), task, tasks))
        self.operator.open(
            replace(within, async_calls=start, wait_until=lambda r: self.calls.wait_until(r))
        )

    def drive(self, actions: list[Any], first: int = 0) -> int:
        for action in actions:
            match action:
                case int():
                    records = list(range(first, first + action))
                    self.operator.process(Bundle(records, [1] * action), 0)
                    first += action
                case Watermark():
                    self.operator.watermark_advanced(action)
                case ("end", place) if self.calls.called:
                    self.calls.end(place)
                    self.calls.completed()
                case ("refuse", place) if self.calls.called:
                    self.calls.end(place, RateLimited(0.02))
                case ("wait", ms):
                    self.calls.advance(ms)
                    self.calls.completed()
        return first

    def finished(self) -> list[Any]:
        self.operator.finish()
        self.operator.close()
        return self.output.row


steps = st.lists(
    st.one_of(
        st.integers(1, 4),
        st.builds(Watermark, st.integers(0, 9)),
        st.tuples(st.sampled_from(["end", "refuse"]), st.integers(0, 2)),
        st.tuples(st.just("wait"), st.integers(1, 30)),
    )
)


@BOTH
@given(steps, steps, st.integers(1, 3))
def test_what_has_not_left_at_a_checkpoint_is_called_again(
    ordered: bool, before: list[Any], after: list[Any], parallelism: int
) -> None:
    """Also what waited in an unfinished batch, for the limit, or for the call of another."""
    bench = BatchBench(ordered)
    count = bench.drive(before)
    states = (stored_state(bench.operator),)
    row = list(bench.output.row)
    tasks = [BatchBench(ordered, states, task, parallelism) for task in range(parallelism)]
    count = tasks[0].drive(after, count)
    for task in tasks:
        row += task.finished()
    found = [element for element in row if isinstance(element, str)]
    expected = [f"r{number // 2}" for number in range(count)]
    assert sorted(found) == sorted(expected)
    if ordered and parallelism == 1:
        assert found == expected


@BOTH
def test_a_snapshot_holds_records_of_an_unfinished_batch_and_waits_for_no_call(
    ordered: bool,
) -> None:
    bench = BatchBench(ordered)
    bench.operator.process(Bundle([0, 2, 4, 6], [5] * 4), 0)
    assert [batch.values() for batch in bench.calls.called] == [[0, 2, 4]]
    again = BatchBench(ordered, (stored_state(bench.operator),))
    assert again.finished() == ["r0", "r1", "r2", "r3"]
    assert again.output.timed[0] == ("r0", 5)


@BOTH
def test_watermarks_stay_after_the_records_of_their_batch(ordered: bool) -> None:
    bench = BatchBench(ordered)
    bench.operator.process(Bundle([0, 2]), 0)
    bench.operator.watermark_advanced(Watermark(10))
    bench.operator.process(Bundle([4, 6]), 0)
    assert bench.output.row == []
    bench.operator.finish()
    assert bench.output.row == ["r0", "r1", Watermark(10), "r2", "r3"]


def test_figures_of_batches_are_those_of_the_operator() -> None:
    operator = AsyncWaitOperator(Negate(), 1000, 5, True, None, BATCHES)
    assert operator.batch_calls() is None
    bench = BatchBench(True)
    bench.operator.process(Bundle([0, 1, 2]), 0)
    figures = bench.operator.batch_calls()
    assert figures is not None
    assert (figures.operator, figures.cache_hits, figures.cache_misses) == ("op", 1, 2)
    bench.calls.advance(10)
    assert bench.calls.called
    bench.operator.close()
    figures = bench.operator.batch_calls()
    assert figures is not None, "what has ended is still counted"
    assert (figures.calls, figures.in_flight) == (1, 0)


def test_a_whole_life_without_an_event_loop() -> None:
    operator = AsyncWaitOperator(Negate(), 1000, 5, True, None, BatchSettings(Batching(2)))
    assert run(operator, [Bundle([1, 2, 3], [7, 8, 9])]).timed == [(-1, 7), (-2, 8), (-3, 9)]


def test_without_a_policy_a_failed_batch_fails_the_job_and_is_not_halved() -> None:
    class Fails(Negate):
        async def async_invoke_batch(self, values: list[Any]) -> list[Any]:
            await super().async_invoke_batch(values)
            raise ValueError("no")

    function = Fails()
    operator = AsyncWaitOperator(function, 1000, 5, True, None, BatchSettings(Batching(2)))
    with pytest.raises(UserFunctionFailed, match="^operator 'op' failed: ValueError: no$"):
        run(operator, [Bundle([1, 2])])
    assert function.calls == [[1, 2]]
