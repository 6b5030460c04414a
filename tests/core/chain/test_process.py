"""Process functions: many records out, side outputs, a context for each record. Row 13, 16."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import MIN_WATERMARK_MS, Bundle
from headgate.core.chain.process import KeyedProcessOperator, ProcessOperator
from headgate.core.chain.tags import OutputTag
from tests.core.chain.kit import cut, open_operator, run


class Halves:
    """Even numbers as they are, odd ones to the side, with what the context tells."""

    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        if value % 2:
            yield OutputTag("odd"), (value, ctx.timestamp())
        else:
            yield value, ctx.timestamp()


@given(
    st.lists(st.integers(0, 99), max_size=30),
    st.lists(st.integers(1, 7), max_size=6),
    st.booleans(),
)
def test_records_go_out_in_order_where_they_belong(
    records: list[int], cuts: list[int], timed: bool
) -> None:
    times: list[int | None] = [n * 10 for n in records]
    output = run(ProcessOperator(Halves()), cut(records, cuts, times if timed else None))
    seen = [(n, n * 10 if timed else MIN_WATERMARK_MS) for n in records]
    assert output.records == [pair for pair in seen if pair[0] % 2 == 0]
    assert output.side_records("odd") == [pair for pair in seen if pair[0] % 2]
    assert [time for _, time in output.timed] == [
        n * 10 if timed else None for n in records if n % 2 == 0
    ]


def test_a_plain_function_may_return_a_list_or_nothing() -> None:
    operator = ProcessOperator(lambda value, ctx: [value] if value > 1 else None)
    assert run(operator, [Bundle([1, 2, 3])]).records == [2, 3]


def test_what_is_not_iterable_is_refused() -> None:
    operator = ProcessOperator(lambda value, ctx: 5)
    open_operator(operator)
    with pytest.raises(TypeError, match="process_element must return an iterable"):
        operator.process(Bundle([1]), 0)


def test_a_keyed_function_knows_the_key() -> None:
    operator = KeyedProcessOperator(
        lambda value, ctx: [(ctx.get_current_key(), value)], lambda value: value % 3
    )
    output = run(operator, [Bundle([4, 5], [1, None])])
    assert output.records == [(1, 4), (2, 5)]


def test_without_a_key_there_is_none() -> None:
    seen: list[Any] = []
    run(ProcessOperator(lambda value, ctx: seen.append(ctx.get_current_key())), [Bundle([1])])
    assert seen == [None]


def test_a_stop_iteration_in_a_generator_is_an_error() -> None:
    def stop(value: int, ctx: Any) -> Iterator[int]:
        yield value
        raise StopIteration

    operator = ProcessOperator(stop)
    open_operator(operator)
    with pytest.raises(RuntimeError):
        operator.process(Bundle([1, 2]), 0)
