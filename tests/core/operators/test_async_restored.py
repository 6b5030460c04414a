"""Asynchronous calls that were under way at a checkpoint are made again, each once."""

from collections import deque
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import Bundle, Watermark
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.snapshots import OperatorRestored, restored_parts
from headgate.core.operators.async_wait import CALLS, AsyncWaitOperator, read_calls, write_calls
from headgate.functions.state import ListStateDescriptor
from tests.core.chain.kit import context, open_operator
from tests.core.chain.restore_kit import StoredState, restored, stored_state
from tests.core.operators.kit import BOTH, AsyncBench, NumberAndSquare


class Again(AsyncBench):
    """Continues from the stored state of others."""

    def __init__(
        self, states: list[StoredState], subtask: int, parallelism: int, **more: Any
    ) -> None:
        self.subtask, self.parallelism, self.states = subtask, parallelism, states
        super().__init__(**more)

    def context(self) -> OperatorContext:
        given = restored(self.states, self.subtask, self.parallelism)
        return replace(context(subtask=self.subtask, parallelism=self.parallelism), restored=given)

    def end_all(self) -> list[Any]:
        self.operator.finish()
        self.operator.close()
        return self.output.row


steps = st.lists(
    st.one_of(
        st.integers(1, 3),
        st.builds(Watermark, st.integers(0, 9)),
        st.tuples(st.just("end"), st.integers(0, 2)),
    )
)


def drive(bench: AsyncBench, actions: list[Any], first: int = 0) -> int:
    """Send so many records, or a watermark, or end a call; answers with the next record."""
    for action in actions:
        if isinstance(action, int):
            bench.operator.process(Bundle(list(range(first, first + action)), [1] * action), 0)
            first += action
        elif isinstance(action, Watermark):
            bench.operator.watermark_advanced(action)
        elif bench.calls.under_way:
            bench.calls.end(action[1] % len(bench.calls.under_way))
            bench.calls.completed()
    return first


@BOTH
@given(steps, steps, st.integers(1, 3))
def test_records_whose_results_had_not_left_are_called_again(
    ordered: bool, before: list[Any], after: list[Any], parallelism: int
) -> None:
    bench = AsyncBench(ordered=ordered)
    count = drive(bench, before)
    states = [stored_state(bench.operator)]
    row = list(bench.output.row)
    bench.operator.close()
    tasks = [Again(states, task, parallelism, ordered=ordered) for task in range(parallelism)]
    twice = [stored_state(task.operator) for task in tasks]
    assert [list(read_calls(_calls(twice), task, parallelism)) for task in range(parallelism)] == [
        list(read_calls(_calls(states), task, parallelism)) for task in range(parallelism)
    ], "what waits is left again"
    count = drive(tasks[0], after, count)
    for task in tasks:
        row += task.end_all()
    expected = [f"r{number}" for number in range(count)]
    found = [element for element in row if isinstance(element, str)]
    assert sorted(found) == sorted(expected)
    if ordered and parallelism == 1:
        assert found == expected
        stayed = AsyncBench(ordered=True)
        drive(stayed, after, drive(stayed, before))
        stayed.operator.finish()
        assert one_by_one(row) == one_by_one(stayed.output.row)


def _calls(states: list[StoredState]) -> list[bytes | None]:
    return list(
        restored_parts(OperatorRestored(plain=tuple(state.plain for state in states)), CALLS)
    )


def one_by_one(row: list[Any]) -> list[Any]:
    """Of watermarks with nothing between them the last says all."""
    return [
        element
        for element, following in zip_longest(row, row[1:])
        if not (isinstance(element, Watermark) and isinstance(following, Watermark))
    ]


@BOTH
def test_more_than_there_is_room_for_waits_its_turn(ordered: bool) -> None:
    states = []
    for start in (0, 3, 6):
        bench = AsyncBench(ordered=ordered)
        drive(bench, [3], start)
        states.append(stored_state(bench.operator))
    again = Again(states, 0, 1, ordered=ordered)
    assert len(again.calls.under_way) == 3
    again.operator.watermark_advanced(Watermark(1))
    again.operator.watermark_advanced(Watermark(2))
    for _ in range(9):  # nobody sends anything: results make room
        again.calls.end()
        again.calls.completed()
        assert again.calls.most <= 3
    assert again.output.row == [*[f"r{number}" for number in range(9)], Watermark(2)]
    drive(again, [1], 9)
    assert again.end_all()[-1] == "r9"


class Tallying(NumberAndSquare):
    """Counts its calls in state of its task."""

    def initialize_state(self, context: Any) -> None:
        states = context.get_operator_state_store()
        self.tally = states.get_list_state(ListStateDescriptor("tally"))
        self.heard.append(("initialize", context.is_restored(), list(self.tally.get())))

    def snapshot_state(self, context: Any) -> None:
        self.tally.update([context.get_checkpoint_id()])

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.heard.append(("complete", checkpoint_id))

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self.heard.append(("aborted", checkpoint_id))


def test_an_asynchronous_function_may_have_state_of_its_task() -> None:
    function = Tallying()
    operator = AsyncWaitOperator(function, 1000, 2, True)
    open_operator(operator)
    state = stored_state(operator)
    operator.checkpoint_completed(3)
    operator.checkpoint_aborted(4)
    operator.close()
    assert function.heard[0] == ("initialize", False, [])
    assert function.heard[1:] == ["vertex", ("complete", 3), ("aborted", 4), "closed"]
    again = Tallying()
    operator = AsyncWaitOperator(again, 1000, 2, True)
    open_operator(operator, within=replace(context(), restored=restored([state], 0, 1)))
    assert again.heard[0] == ("initialize", True, [7])
    operator.close()


def test_what_waits_for_the_queue_stays_after_it() -> None:
    held = ([1, 2], [None, 7], [Watermark(7)])
    data = write_calls([held], deque([(3, None)]))
    assert list(read_calls([data], 0, 1)) == [(1, None), (2, 7), Watermark(7), (3, None)]
