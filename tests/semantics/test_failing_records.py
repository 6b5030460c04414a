"""Programs whose functions fail for some records: what comes out, and what becomes dead letters."""

import asyncio
import logging
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.base.errors import PlanInvalid, RecordsFailing, UserFunctionFailed
from headgate.common import Configuration, Row, Time, Types
from headgate.datastream import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    DataStream,
    DeadLetter,
    ErrorPolicy,
    FailedWindow,
    KeyedProcessFunction,
    OutputTag,
    async_retry_predicates,
)
from headgate.datastream.window import TumblingEventTimeWindows
from tests.semantics.lab import Lab, first

DEAD = OutputTag("dead")
LETTERS = ErrorPolicy.dead_letters(DEAD)


def odd(value: int) -> int:
    if value % 2 == 0:
        raise ValueError(f"{value} is even")
    return value


def both(lab: Lab, stream: DataStream) -> tuple[list[Any], list[DeadLetter]]:
    records, letters = lab.run(stream, stream.get_side_output(DEAD))
    return records, letters


def test_map_sends_what_it_fails_for_to_the_dead_letters(lab: Lab) -> None:
    stream = lab.read(*range(10)).map(odd).name("odd only").on_error(LETTERS)
    records, letters = both(lab, stream)
    assert sorted(records) == [1, 3, 5, 7, 9]
    assert sorted(letter.record for letter in letters) == [0, 2, 4, 6, 8]
    assert {letter.operator for letter in letters} == {"odd only"}
    assert {letter.subtask for letter in letters} <= {0, 1}
    assert {(letter.error_class, letter.raw, letter.cut) for letter in letters} == {
        ("ValueError", None, "")
    }


def test_without_a_policy_the_job_fails(lab: Lab) -> None:
    with pytest.raises(UserFunctionFailed, match="is even"):
        lab.run(lab.read(1, 2).map(odd))


def test_a_policy_is_for_one_operator(lab: Lab) -> None:
    with pytest.raises(UserFunctionFailed, match="downstream"):
        lab.run(
            lab.read(1, 2).map(lambda value: value).on_error(LETTERS).map(odd).name("downstream")
        )


def test_the_setting_is_for_all_operators_that_say_nothing_else(lab: Lab) -> None:
    lab.env.configure(configuration({"pipeline.on-error": "skip"}))
    assert lab.run(lab.read(1, 2, 3).map(odd)) == [1, 3]
    with pytest.raises(UserFunctionFailed, match="is even"):
        lab.run(lab.read(1, 2).map(odd).on_error(ErrorPolicy.FAIL))


def test_a_stream_that_fails_as_a_whole_fails_the_job(lab: Lab) -> None:
    lab.env.configure(configuration({"pipeline.on-error.max-in-a-row": "20"}))
    lab.env.set_parallelism(1)
    with pytest.raises(RecordsFailing, match="skipped 20 records in a row"):
        lab.run(lab.read(*range(0, 100, 2)).map(odd).on_error(ErrorPolicy.SKIP))
    assert lab.run(lab.read(*range(100)).map(odd).on_error(ErrorPolicy.SKIP))


def test_the_log_has_the_traceback_of_the_first_failure(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    lab.env.set_parallelism(1)
    with caplog.at_level(logging.WARNING):
        lab.run(lab.read(2, 4, 6).map(odd).name("odd only").on_error(ErrorPolicy.SKIP))
    first_line, last_line = [record.getMessage() for record in caplog.records]
    assert first_line.startswith(
        "operator 'odd only' (1/1): the record 2 was skipped because of ValueError: 2 is even;"
    )
    assert "in odd\n" in first_line and first_line.endswith("ValueError: 2 is even")
    assert last_line == "operator 'odd only' (1/1): 2 more records were skipped"


def test_a_record_without_a_key_reaches_the_policy_of_the_keyed_operator(lab: Lab) -> None:
    class Keep(KeyedProcessFunction[Any, Any, Any]):
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield ctx.get_current_key(), value

    records = [(1, "a"), (), (2, "b"), ("x",), (3, "c")]
    stream = (
        lab.read(*records).key_by(lambda record: record[0] + 0).process(Keep()).on_error(LETTERS)
    )
    found, letters = both(lab, stream.name("keep"))
    assert sorted(found) == [(1, (1, "a")), (2, (2, "b")), (3, (3, "c"))]
    assert {(letter.record, letter.operator, letter.error_class) for letter in letters} == {
        ((), "keep", "IndexError"),
        (("x",), "keep", "TypeError"),
    }


def test_without_a_policy_of_the_keyed_operator_a_key_selector_fails_the_job(lab: Lab) -> None:
    with pytest.raises(UserFunctionFailed, match="when the key of a record was selected"):
        lab.run(lab.read((1,), ()).key_by(first).map(lambda record: record).name("keyed"))


@pytest.mark.parametrize("batch", [True, False])
def test_windows_leave_records_out_and_answer_nothing_where_their_function_fails(
    lab: Lab, batch: bool
) -> None:
    if batch:
        lab.env.configure(configuration({"execution.runtime-mode": "batch"}))

    def add(left: Any, right: Any) -> Any:
        return left[0], left[1], left[2] + right[2]

    def shown(key: Any, window: Any, records: Any) -> Any:
        if key == "b":
            raise ValueError("not b")
        return [(key, *(record[2] for record in records))]

    class Shown:
        apply = staticmethod(shown)

    timed = lab.timed([("a", 1, 1), ("a", 2, None), ("a", 3, 2), ("b", 4, 3)])
    windows = timed.key_by(first).window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
    records, letters = both(lab, windows.reduce(add, Shown()).on_error(LETTERS))
    assert records == [("a", 3)]
    assert sorted(letter.timestamp_ms for letter in letters) == [2, 9]
    assert {letter.record for letter in letters if letter.timestamp_ms == 2} == {("a", 2, None)}
    (window,) = [letter.record for letter in letters if letter.timestamp_ms == 9]
    assert isinstance(window, FailedWindow) and window.key == "b"


class Calls(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> list[int]:
        return [odd(value)]

    def timeout(self, value: int) -> list[int]:
        raise TimeoutError("late")


@pytest.mark.parametrize("ordered", [True, False])
def test_asynchronous_calls_leave_out_what_fails(lab: Lab, ordered: bool) -> None:
    wait = AsyncDataStream.ordered_wait if ordered else AsyncDataStream.unordered_wait
    lab.env.set_parallelism(1)
    stream = wait(lab.read(*range(20)), Calls(), Time.seconds(30), 3).on_error(LETTERS)
    records, letters = both(lab, stream)
    assert (records if ordered else sorted(records)) == list(range(1, 20, 2))
    assert sorted(letter.record for letter in letters) == list(range(0, 20, 2))


class Slow(AsyncFunction[int, int]):
    """2 never answers in time, 3 fails as often as it is tried."""

    async def async_invoke(self, value: int) -> list[int]:
        if value == 2:
            await asyncio.sleep(60)
        if value == 3:
            raise ConnectionError("refused")
        return [value]


@pytest.mark.parametrize("ordered", [True, False])
def test_timeouts_and_retries_that_are_used_up_are_failures_of_their_record(
    lab: Lab, ordered: bool
) -> None:
    way = AsyncDataStream
    wait = way.ordered_wait_with_retry if ordered else way.unordered_wait_with_retry
    retry = AsyncRetryStrategy.fixed_delay(
        2, 1, exception_predicate=async_retry_predicates.has_exception_predicate
    )
    lab.env.set_parallelism(1)
    stream = wait(lab.read(1, 2, 3, 4), Slow(), Time.milliseconds(200), retry)
    records, letters = both(lab, stream.on_error(LETTERS))
    assert (records if ordered else sorted(records)) == [1, 4]
    assert {(letter.record, letter.error_class) for letter in letters} == {
        (2, "TimeoutError"),
        (3, "ConnectionError"),
    }


def test_a_sink_has_dead_letters_too(lab: Lab) -> None:
    written: list[int] = []
    sink = lab.read(1, 2, 3).add_sink(lambda value: written.append(odd(value)))
    letters = lab.run(sink.on_error(LETTERS).get_side_output(DEAD))
    assert sorted(written) == [1, 3] and [letter.record for letter in letters] == [2]


def test_results_that_do_not_fit_their_type_are_the_operators_failures(lab: Lab) -> None:
    stream = lab.read(1, "x", 3).map(lambda value: value, output_type=Types.INT())
    records, letters = both(lab, stream.on_error(LETTERS))
    assert sorted(records) == [1, 3]
    assert [(letter.record, letter.error_class) for letter in letters] == [("x", "TypeError")]


def test_dead_letters_have_a_type_if_their_tag_says_so(lab: Lab) -> None:
    fields = [Types.PICKLED_BYTE_ARRAY()] * len(DeadLetter._fields)
    tag = OutputTag("dead", Types.ROW_NAMED(list(DeadLetter._fields), fields))
    stream = lab.read(1, 2).map(odd).on_error(ErrorPolicy.dead_letters(tag))
    ((row,),) = lab.run(stream.get_side_output(tag).map(lambda row: [row]))
    assert isinstance(row, Row) and (row.record, row.reason) == (2, "2 is even")


def test_dead_letters_that_do_not_fit_their_type_fail_the_job(lab: Lab) -> None:
    tag = OutputTag("dead", Types.INT())
    stream = lab.read(1, 2).map(odd).on_error(ErrorPolicy.dead_letters(tag))
    with pytest.raises(UserFunctionFailed, match="when a dead letter was sent on"):
        lab.run(stream.get_side_output(tag))


def test_a_policy_that_is_none_is_refused(lab: Lab) -> None:
    with pytest.raises(PlanInvalid, match=r"on_error\(\) was given 'skip'; give ErrorPolicy.FAIL"):
        lab.read(1).map(odd).on_error("skip")  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match=r"on_error\(\) belongs to an operator"):
        lab.read(1).union(lab.read(2)).on_error(ErrorPolicy.SKIP)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 30), max_size=60), st.sets(st.integers(0, 30)), st.booleans())
def test_whatever_fails_nothing_is_lost_and_every_channel_keeps_its_order(
    lab: Lab, values: list[int], bad: set[int], mutable: bool
) -> None:
    """A source in one task, a keyed operator in two: each key stays in order."""

    def check(pair: Any) -> Any:
        if pair[0] in bad:
            raise ValueError("bad")
        return pair

    pairs: list[Any] = [[value, place] for place, value in enumerate(values)]
    if not mutable:
        pairs = [tuple(pair) for pair in pairs]
    stream = lab.read(*pairs).key_by(first).map(check).on_error(LETTERS)
    records, letters = both(lab, stream)
    rejected = [letter.record for letter in letters]
    assert sorted(map(tuple, records + rejected)) == sorted(map(tuple, pairs))
    assert {pair[0] for pair in rejected} <= bad
    for key in range(31):
        for found in (records, rejected):
            places = [pair[1] for pair in found if pair[0] == key]
            assert places == sorted(places)


def configuration(texts: dict[str, str]) -> Configuration:
    found = Configuration()
    for key, text in texts.items():
        found.set_string(key, text)
    return found
