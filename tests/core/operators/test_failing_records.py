"""Operators with an error policy: what fails is left out, and the rest goes on without it."""

from collections.abc import Sequence
from typing import Any

import pytest

from headgate.base.elements import Bundle
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.watermarks import TimePlan, silent
from headgate.core.operators.basic import FilterOperator, FlatMapOperator, MapOperator
from headgate.core.operators.source import SourceOperator
from headgate.core.operators.timestamps import TimestampsOperator
from headgate.functions.error_policy import ErrorPolicy
from headgate.functions.source import Source, SplitReader
from tests.core.chain.kit import open_operator
from tests.core.operators.failing_kit import TolerantRun


def odd(value: int) -> int:
    if value % 2 == 0:
        raise ValueError(f"{value} is even")
    return value


class Bytes(Source):
    """Numbers of one digit, as bytes; a poll for each split."""

    def splits(self, parallelism: int) -> Sequence[object]:
        return []

    def open(self, split: object, position: object, context: OperatorContext) -> "BytesReader":
        assert isinstance(split, bytes)
        return BytesReader(split, context)


class BytesReader(SplitReader):
    def __init__(self, data: bytes, context: OperatorContext) -> None:
        self._data: bytes | None = data
        self._malformed = context.malformed

    def poll(self, limit: int) -> list[int] | None:
        data, self._data = self._data, None
        if data is None:
            return None
        found = []
        for byte in data:
            try:
                found.append(int(bytes([byte])))
            except ValueError as error:
                self._malformed(bytes([byte]), error)
        return found

    def position(self) -> object:
        return self._data


def test_a_source_reports_bytes_that_are_no_record_and_goes_on() -> None:
    run = TolerantRun(SourceOperator(Bytes(), (b"1a2", b"b")))
    operator = run.operator
    assert isinstance(operator, SourceOperator)
    while operator.splits:
        operator.poll(10)
    assert run.records == [1, 2]
    assert [letter.raw for letter in run.letters] == [b"a", b"b"]
    assert run.letters[0].reason.startswith("invalid literal for int()")


def test_without_a_policy_malformed_bytes_fail_the_source() -> None:
    operator = SourceOperator(Bytes(), (b"1a2",))
    open_operator(operator)
    with pytest.raises(ValueError, match="invalid literal"):
        operator.poll(10)


def extract(value: int, time_ms: int) -> Any:
    return "soon" if value == 3 else odd(value) * 10


def test_records_without_a_time_are_left_out_of_a_timed_stream() -> None:
    run = TolerantRun(TimestampsOperator(TimePlan(silent, extract, interval_ms=0)))
    run.process(1, 2, 3, 5)
    run.process(2)
    assert run.output.timed == [(1, 10), (5, 50)]
    assert run.rejected == [2, 3, 2]


def test_map_sends_results_with_the_times_of_their_records() -> None:
    run = TolerantRun(MapOperator(odd))
    run.process(1, 2, 3, times=[10, 20, 30])
    run.process(4)
    run.process(5)
    assert run.output.timed == [(1, 10), (3, 30), (5, None)]
    assert [(letter.record, letter.timestamp_ms) for letter in run.letters] == [(2, 20), (4, None)]


@pytest.mark.parametrize("record", [3, [3]])
def test_filter_leaves_out_what_it_fails_for(record: Any) -> None:
    def wanted(value: Any) -> bool:
        return (value if isinstance(value, int) else value[0] if value else 1 // 0) > 2

    run = TolerantRun(FilterOperator(wanted))
    run.process(1, [], record, None, times=[1, 2, 3, 4])
    assert run.output.timed == [(record, 3)]
    assert run.rejected == [[], None]


def test_flat_map_sends_nothing_of_a_record_that_fails_in_the_middle() -> None:
    def spread(value: int) -> Any:
        yield value
        yield odd(value)

    run = TolerantRun(FlatMapOperator(spread))
    run.process(1, 2, 3, times=[1, 2, 3])
    assert run.output.timed == [(1, 1), (1, 1), (3, 3), (3, 3)]
    assert run.rejected == [2]


def test_skipped_records_are_counted() -> None:
    run = TolerantRun(MapOperator(odd), ErrorPolicy.SKIP)
    run.process(*range(10))
    assert run.records == [1, 3, 5, 7, 9]
    assert run.failures.skipped == 5 and not run.output.side
    assert isinstance(run.lines[0][1], ValueError)


def test_key_selectors_that_fail_leave_the_record_out() -> None:
    run = TolerantRun(MapOperator(lambda value: value, key_of=odd))
    run.operator.process(Bundle([1, 2, 3], [1, 2, 3]), 0)
    assert run.output.timed == [(1, 1), (3, 3)]
    assert run.rejected == [2]
