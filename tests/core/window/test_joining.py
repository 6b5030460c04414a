"""Two streams in the same windows: sides, keys, pairs, and the life of the user's function."""

import pickle
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import Bundle, StreamStatus, Watermark
from headgate.core.chain.operator import Operator
from headgate.core.window.operator import (
    CoGroupCall,
    FlatJoinCall,
    JoinCall,
    JoinedWindowOperator,
    SidedKey,
)
from headgate.core.window.spec import Listed, WindowCall, WindowPlan
from headgate.functions.assigners import TumblingEventTimeWindows
from headgate.functions.triggers import EventTimeTrigger
from tests.core.chain.kit import KeptOutput, open_operator


def first(record: tuple[str, int]) -> str:
    return record[0]


def joined(call: CoGroupCall) -> JoinedWindowOperator:
    return JoinedWindowOperator(
        WindowPlan(
            SidedKey(first, first),
            TumblingEventTimeWindows(10),
            EventTimeTrigger(),
            Listed(),
            WindowCall("apply", call),
        )
    )


def send(operator: Operator, side: int, *timed: tuple[tuple[str, int], int]) -> None:
    operator.process(Bundle([record for record, _ in timed], [time for _, time in timed]), side)


def end(operator: Operator) -> None:
    operator.watermark_advanced(Watermark(2**63 - 1))
    operator.end_input(0)
    operator.end_input(1)
    operator.finish()
    operator.close()


def test_a_flat_join_gives_any_number_for_a_pair() -> None:
    operator = joined(FlatJoinCall(lambda left, right: [left[1]] * right[1]))
    output = open_operator(operator)
    send(operator, 0, (("a", 5), 0), (("a", 6), 1))
    send(operator, 1, (("a", 2), 2), (("a", 0), 3))
    end(operator)
    assert output.records == [5, 5, 6, 6]


def test_a_co_group_sees_records_without_a_partner() -> None:
    operator = joined(CoGroupCall(lambda left, right: [(left, right)]))
    output = open_operator(operator)
    send(operator, 0, (("a", 1), 0))
    send(operator, 1, (("b", 2), 11), (("a", 3), 4), (("a", 4), 3))
    end(operator)
    assert output.timed == [
        (([("a", 1)], [("a", 3), ("a", 4)]), 9),
        (([], [("b", 2)]), 19),
    ]


@given(
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from("ab"), st.integers(-30, 30)), max_size=20)
)
def test_a_join_gives_what_two_loops_give(rows: list[tuple[int, str, int]]) -> None:
    operator = joined(JoinCall(lambda left, right: (left, right)))
    output = open_operator(operator)
    numbered = [(side, (key, number), time) for number, (side, key, time) in enumerate(rows)]
    for side, record, time in numbered:
        send(operator, side, (record, time))
    end(operator)
    expected = [
        ((left, right), time - time % 10 + 9)
        for side, left, time in numbered
        for other_side, right, other_time in numbered
        if (side, other_side) == (0, 1) and left[0] == right[0] and time // 10 == other_time // 10
    ]
    assert sorted(output.timed) == sorted(expected)


class LoggingFunction:
    """A user's function that logs the calls it gets."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def open(self, runtime_context: Any) -> None:
        self.calls.append(f"open {runtime_context.get_index_of_this_subtask()}")

    def close(self) -> None:
        self.calls.append("close")

    def co_group(self, lefts: Iterable[Any], rights: Iterable[Any]) -> Iterable[Any]:
        self.calls.append("called")
        yield len(list(lefts)), len(list(rights))


def test_the_users_function_is_opened_and_closed() -> None:
    function = LoggingFunction()
    operator = joined(CoGroupCall(function))
    output = open_operator(operator)
    send(operator, 1, (("a", 1), 0))
    end(operator)
    operator.close()
    assert output.records == [(0, 1)]
    assert function.calls == ["open 0", "called", "close"]


def test_a_join_function_may_return_none() -> None:
    operator = joined(JoinCall(lambda left, right: None))
    output = open_operator(operator)
    send(operator, 0, (("a", 1), 0))
    send(operator, 1, (("a", 1), 0))
    operator.watermark_advanced(Watermark(100))
    assert output.records == [None]
    operator.close()


@pytest.mark.parametrize("call", [CoGroupCall, FlatJoinCall])
def test_what_is_no_iterable_is_told(call: type[CoGroupCall]) -> None:
    operator = joined(call(lambda left, right: 5))
    open_operator(operator)
    send(operator, 0, (("a", 1), 0))
    send(operator, 1, (("a", 1), 0))
    with pytest.raises(TypeError, match="must return an iterable"):
        operator.watermark_advanced(Watermark(100))
    operator.close()


def test_watermarks_and_statuses_go_on_once() -> None:
    operator = joined(JoinCall(lambda left, right: left))
    output: KeptOutput = open_operator(operator)
    operator.watermark_advanced(Watermark(5))
    operator.status_changed(StreamStatus(False))
    assert output.elements == [Watermark(5), StreamStatus(False)]
    operator.close()


def test_late_records_of_both_streams_are_counted() -> None:
    operator = joined(JoinCall(lambda left, right: left))
    open_operator(operator)
    operator.watermark_advanced(Watermark(20))
    send(operator, 0, (("a", 1), 5))
    send(operator, 1, (("a", 1), 5), (("a", 1), 25))
    assert (operator.late.count, operator.late.most_ms) == (2, 20 - 9 + 1)
    operator.close()


def test_in_batch_each_key_is_joined_on_its_own() -> None:
    operator = joined(JoinCall(lambda left, right: (left[1], right[1])))
    output = open_operator(operator)
    for key, number in (("a", 1), ("b", 2)):
        send(operator, 0, ((key, number), 0))
        send(operator, 1, ((key, number * 10), 1))
        operator.key_ended()
    assert output.records == [(1, 10), (2, 20)]
    operator.close()


def test_keys_come_from_the_side_of_the_record() -> None:
    key_of = pickle.loads(pickle.dumps(SidedKey(first, len)))
    assert key_of((0, ("a", 1))) == "a"
    assert key_of((1, "abc")) == 3
