"""Programs that join columns give what the same programs on records give, or say what to change."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate import (
    Duration,
    EventTimeSessionWindows,
    OutputTag,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from headgate.api.columns import ColumnStream
from headgate.base.errors import BatchUnfit, PlanInvalid
from headgate.functions.assigners import TumblingProcessingTimeWindows
from headgate.functions.evictors import CountEvictor
from headgate.functions.triggers import CountTrigger, EventTimeTrigger
from tests.core.columns.kit import ROWS, SCHEMA, batches_of

STRATEGY = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(100))
WINDOWS = [
    TumblingEventTimeWindows.of(Time.milliseconds(1_000)),
    SlidingEventTimeWindows.of(Time.milliseconds(900), Time.milliseconds(600)),
    EventTimeSessionWindows.with_gap(Time.milliseconds(400)),
]
TAG, OTHER = OutputTag("late"), OutputTag("other")
Rows = list[tuple[Any, ...]]


def environment() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)


def columns_of(env: StreamExecutionEnvironment, rows: Rows, size: int = 7) -> ColumnStream:
    stream = env.from_collection(batches_of(rows, size)).columns(SCHEMA)
    return stream.assign_timestamps_and_watermarks(STRATEGY, "at")


def records_of(env: StreamExecutionEnvironment, rows: Rows) -> Any:
    assigner = STRATEGY.with_timestamp_assigner(lambda row, before: row[3])
    return env.from_collection(rows).assign_timestamps_and_watermarks(assigner)


@pytest.mark.parametrize("windows", WINDOWS, ids=repr)
@given(rows=ROWS, others=ROWS, size=st.integers(1, 20))
def test_joined_columns_are_joined_records(
    windows: Any, rows: Rows, others: Rows, size: int
) -> None:
    def key(row: Any) -> Any:
        return row[0], row[1]

    env = environment()
    pairs = records_of(env, rows).join(records_of(env, others)).where(key).equal_to(key)
    joined = pairs.window(windows).apply(lambda left, right: (*left, right[2], right[3]))
    expected = sorted(map(repr, joined.execute_and_collect()))
    env = environment()
    first, second = columns_of(env, rows, size), columns_of(env, others, size)
    where = first.join(second).where("word", "number").equal_to("word", "number")
    found = where.window(windows).apply()
    assert found.schema is not None
    assert found.schema.names == [
        *(*SCHEMA.names, "amount_right", "at_right", "window_start", "window_end")
    ]
    assert sorted(repr(tuple(row)[:-2]) for row in found.execute_and_collect()) == expected


def joined(windows: Any = WINDOWS[0], **options: Any) -> Any:
    env = environment()
    first, second = (columns_of(env, [("a", 1, 2, 3)]) for _ in range(2))
    return first.join(second, **options).where("word").equal_to("word").window(windows)


def test_a_join_can_be_joined_again_and_aggregated() -> None:
    env = environment()
    streams = [columns_of(env, [("a", 1, 2, 300), ("b", 1, 2, 5_000)]) for _ in range(3)]
    tumbling = WINDOWS[0]
    first = streams[0].join(streams[1]).where("word").equal_to("word").window(tumbling).apply()
    second = first.join(streams[2].select("word", "at")).where("word").equal_to("word")
    twice = second.window(tumbling).apply(suffixes=("_1", "_2"))
    assert twice.schema is not None
    assert twice.schema.names[-5:] == [
        *("window_start_1", "window_end_1", "at_2", "window_start", "window_end")
    ]
    counted = twice.key_by("word").window(tumbling).count()
    assert sorted((row.word, row.count) for row in counted.execute_and_collect()) == [
        ("a", 1),
        ("b", 1),
    ]


def test_outer_joins_fill_with_nulls() -> None:
    env = environment()
    first = columns_of(env, [("a", 1, 2, 300), ("b", 1, 2, 300)])
    second = columns_of(env, [("b", 1, 5, 400), ("c", 1, 6, 400)])
    full = first.join(second, how="full").where("word").equal_to("word").window(WINDOWS[0]).apply()
    found = [(row.word, row.amount, row.amount_right) for row in full.execute_and_collect()]
    assert sorted(found) == [("a", 2, None), ("b", 2, 5), ("c", None, 6)]


def test_streams_without_a_schema_are_joined_too() -> None:
    env = environment()
    first, second = (
        env.from_collection(batches_of([("a", 1, 2, 3)], 1))
        .columns()
        .assign_timestamps_and_watermarks(STRATEGY, "at")
        for _ in range(2)
    )
    pairs = first.join(second).where("word").equal_to("word").window(WINDOWS[0]).apply()
    assert pairs.schema is None
    assert [row.at_right for row in pairs.execute_and_collect()] == [3]
    with pytest.raises(PlanInvalid, match=r"join\(how='left'\) fills columns with nulls"):
        first.join(second, how="left")


def test_late_rows_have_the_columns_of_their_stream() -> None:
    pairs = joined().side_output_left_late_data(TAG).side_output_right_late_data(OTHER).apply()
    assert pairs.get_side_output(TAG).schema == SCHEMA
    late = pairs.get_side_output(OTHER)
    late.key_by("word").window(WINDOWS[0])  # they have event time
    both = joined().side_output_late_data(TAG).apply()
    assert both.get_side_output(TAG).schema == SCHEMA


def test_triggers_and_evictors_are_refused() -> None:
    windows = joined()
    assert windows.trigger(EventTimeTrigger()).allowed_lateness(5) is windows
    with pytest.raises(PlanInvalid, match="was given CountTrigger, and its windows fire by event"):
        windows.trigger(CountTrigger.of(3))
    with pytest.raises(PlanInvalid, match="have no evictor"):
        windows.evictor(CountEvictor.of(3))


def test_nulls_in_keys_fail_the_job() -> None:
    env = environment()
    first, second = (columns_of(env, [(None, 1, 2, 3), ("a", 1, 2, 3)], 1) for _ in range(2))
    pairs = first.join(second).where("word").equal_to("word").window(WINDOWS[0]).apply()
    with pytest.raises(BatchUnfit, match="operator 'Window Join': column 'word' has 1 nulls"):
        list(pairs.execute_and_collect())


@pytest.mark.parametrize(
    ("write", "problem"),
    [
        (lambda s: s.join(3), r"join\(\) of columns was given 3; give another stream of columns"),
        (lambda s: s.join(s, how="cross"), "how='cross'; give one of inner, left, right, full"),
        (lambda s: s.join(s).where(), r"where\(\) was given no column"),
        (lambda s: s.join(s).where("nope"), r"where\(\): there is no column 'nope'; there are wo"),
        (lambda s: s.join(s).where("word").equal_to("z"), r"equal_to\(\): there is no column 'z'"),
        (
            lambda s: s.join(s).where("word").equal_to("word", "at"),
            r"equal_to\(\) was given 2 columns and where\(\) 1",
        ),
        (
            lambda s: s.join(s).where("word").equal_to("at").window(WINDOWS[0]).apply(),
            r"apply\(\): its keys 'word' of type string on the left and 'at' of type int64 on the",
        ),
        (
            lambda s: s.join(s.with_column("half", 0.5)).where("word").equal_to("half"),
            r"equal_to\(\): column 'half' of type .* cannot be a key",
        ),
        (
            lambda s: s.join(s.select("word")).where("word").equal_to("word").window(WINDOWS[0]),
            "no column of the right stream holds it; call assign_timestamps",
        ),
        (
            lambda s: (
                s.join(s)
                .where("word")
                .equal_to("word")
                .window(TumblingProcessingTimeWindows.of(Time.seconds(1)))
            ),
            "give tumbling, sliding or session windows in event time",
        ),
        (
            lambda s: (
                s.join(s.with_column("b", 1))
                .where("word")
                .equal_to("word")
                .window(WINDOWS[0])
                .side_output_late_data(TAG)
            ),
            "puts late rows of both streams together, and the left has",
        ),
        (
            lambda s: (
                s.join(s.with_column("b", 1).with_column("b_right", 1))
                .where("word")
                .equal_to("word")
                .window(WINDOWS[0])
                .apply(suffixes=("", ""))
            ),
            "would have the column 'number' more than once; rename",
        ),
        (
            lambda s: joined().apply(suffixes="_right"),
            "suffixes='_right'; give two texts",
        ),
        (lambda s: joined().side_output_late_data("x"), "was given 'x'; give an OutputTag"),
        (
            lambda s: joined().side_output_left_late_data(TAG).side_output_left_late_data(OTHER),
            "late rows of a stream have one side output only",
        ),
        (
            lambda s: joined().side_output_left_late_data(TAG).side_output_right_late_data(TAG),
            "which the other stream has already",
        ),
    ],
)
def test_slips_are_refused_when_the_program_is_written(write: Any, problem: str) -> None:
    with pytest.raises(PlanInvalid, match=problem):
        write(columns_of(environment(), [("a", 1, 2, 3)]))


def test_streams_of_two_environments_are_not_joined() -> None:
    with pytest.raises(PlanInvalid, match="two environments"):
        columns_of(environment(), [("a", 1, 2, 3)]).join(columns_of(environment(), []))


def test_results_have_the_last_time_of_their_window() -> None:
    windows = joined(WINDOWS[0]).apply().to_records()

    class Stamped:
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield value.window_end, ctx.timestamp()

    ((end, stamp),) = windows.process(Stamped()).execute_and_collect()  # type: ignore[arg-type]
    assert stamp == round(end.timestamp() * 1000) - 1
    assert isinstance(pa.scalar(end), pa.TimestampScalar)
