"""Programs on columns give what the same programs on records give."""

from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pandas
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import compute as pc

from headgate import (
    Duration,
    EventTimeSessionWindows,
    OutputTag,
    ProcessFunction,
    Row,
    RuntimeExecutionMode,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    Types,
    WatermarkStrategy,
)
from headgate.api.columns import ColumnStream, col
from headgate.base.errors import BatchUnfit, PlanInvalid
from headgate.connectors.generator import NumberSequenceSource
from headgate.core.operators.timestamps import TimedOperator, TimestampsOperator
from headgate.functions.assigners import (
    GlobalWindows,
    ProcessingTimeSessionWindows,
    TumblingProcessingTimeWindows,
)
from headgate.functions.error_policy import ErrorPolicy
from headgate.functions.evictors import CountEvictor
from headgate.functions.triggers import CountTrigger, EventTimeTrigger
from headgate.functions.window_functions import ProcessWindowFunction
from tests.api.kit import ListSink, OneTaskRuntime
from tests.core.columns.kit import ROWS, SCHEMA, batches_of, table_of

STRATEGY = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(100))
TAG = OutputTag("odd")
Rows = list[tuple[Any, ...]]


def environment(batch: bool = False) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment()
    if batch:
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    return env.set_parallelism(1)


def columns_of(rows: Rows, size: int = 7, batch: bool = False) -> ColumnStream:
    return environment(batch).from_collection(batches_of(rows, size)).columns(SCHEMA)


def collected(stream: ColumnStream) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in stream.execute_and_collect()]


def last_of_each(rows: list[tuple[Any, ...]], width: int) -> dict[Any, tuple[Any, ...]]:
    """A running aggregate ends with the last one."""
    return {row[:width]: row[width:] for row in rows}


@given(rows=ROWS, size=st.integers(1, 20))
def test_filter_select_and_with_column_are_those_of_records(rows: Rows, size: int) -> None:
    stream = columns_of(rows, size)
    found = collected(
        stream.filter((col("number") > 0) & col("amount").is_valid())
        .with_column("twice", col("amount") * 2)
        .with_column("number", col("number") + 1)
        .select("word", "twice", number="number", const=5)
    )
    assert found == [
        (word, amount * 2, number + 1, 5)
        for word, number, amount, _ in rows
        if number > 0 and amount is not None
    ]


@given(rows=ROWS, size=st.integers(1, 20), batch=st.booleans())
def test_aggregates_are_those_of_a_fold_over_records(rows: Rows, size: int, batch: bool) -> None:
    stream = columns_of(rows, size, batch).key_by("word", "number")
    found = collected(stream.aggregate(n="count", total=("amount", "sum"), top=("at", "max")))
    expected: dict[Any, Any] = {}
    for word, number, amount, at in rows:
        n, total, top = expected.get((word, number), (0, None, at))
        total = amount if total is None else total + (amount or 0)
        expected[word, number] = (n + 1, total, max(top, at))
    assert last_of_each(found, 2) == expected
    if batch:
        assert len(found) == len(expected), "one result for each key"


@given(rows=ROWS, size=st.integers(1, 20))
def test_short_forms_are_aggregates(rows: Rows, size: int) -> None:
    def last(make: Callable[[Any], ColumnStream]) -> dict[Any, Any]:
        return last_of_each(collected(make(columns_of(rows, size).key_by("word"))), 1)

    groups: dict[Any, list[Any]] = defaultdict(list)
    for word, _, _, at in rows:
        groups[(word,)].append(at)
    assert last(lambda keyed: keyed.count()) == {k: (len(v),) for k, v in groups.items()}
    assert last(lambda keyed: keyed.sum("at")) == {k: (sum(v),) for k, v in groups.items()}
    assert last(lambda keyed: keyed.min("at")) == {k: (min(v),) for k, v in groups.items()}
    assert last(lambda keyed: keyed.max("at")) == {k: (max(v),) for k, v in groups.items()}
    means = {k: (pytest.approx(sum(v) / len(v)),) for k, v in groups.items()}
    assert last(lambda keyed: keyed.mean("at")) == means


class Summed(ProcessWindowFunction[Any, Any, Any, Any]):
    """The record twin: bounds, rows and the sum of amounts that are there."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        amounts = [row[2] for row in elements if row[2] is not None]
        window = context.window()
        yield key, window.start, window.end, len(elements), sum(amounts) if amounts else None


WINDOWS = [
    TumblingEventTimeWindows.of(Time.milliseconds(1_000)),
    TumblingEventTimeWindows.of(Time.milliseconds(700), Time.milliseconds(30)),
    SlidingEventTimeWindows.of(Time.milliseconds(900), Time.milliseconds(600)),
    SlidingEventTimeWindows.of(Time.milliseconds(500), Time.milliseconds(2_000)),
    EventTimeSessionWindows.with_gap(Time.milliseconds(400)),
]


@pytest.mark.parametrize("windows", WINDOWS, ids=repr)
@given(rows=ROWS, size=st.integers(1, 20))
def test_windows_of_columns_are_those_of_records(windows: Any, rows: Rows, size: int) -> None:
    records = environment().from_collection(rows)
    timed = records.assign_timestamps_and_watermarks(
        STRATEGY.with_timestamp_assigner(lambda row, before: row[3])
    )
    keyed = timed.key_by(lambda row: row[0]).window(windows)
    expected = sorted(map(repr, keyed.process(Summed()).execute_and_collect()))
    stream = columns_of(rows, size).assign_timestamps_and_watermarks(STRATEGY, "at")
    windowed = stream.key_by("word").window(windows)
    found = collected(windowed.aggregate(n="count", total=("amount", "sum")))
    in_ms = [
        (word, round(start.timestamp() * 1000), round(end.timestamp() * 1000), n, total)
        for word, start, end, n, total in found
    ]
    assert sorted(map(repr, in_ms)) == expected


@given(rows=ROWS, size=st.integers(1, 20))
def test_records_and_batches_are_two_forms_of_the_same(rows: Rows, size: int) -> None:
    env = environment()
    kind = Types.ROW_NAMED(
        list(SCHEMA.names), [Types.STRING(), Types.LONG(), Types.LONG(), Types.LONG()]
    )
    stream = env.from_collection(rows).to_arrow(kind, size)
    assert stream.schema == SCHEMA
    found = list(stream.execute_and_collect())
    assert found == [Row(**dict(zip(SCHEMA.names, row, strict=True))) for row in rows]


def test_records_made_batches_have_no_time_until_a_column_gives_it() -> None:
    kind = Types.ROW_NAMED(["word", "at"], [Types.STRING(), Types.LONG()])
    timed = environment().from_collection([("a", 100), ("a", 1100), ("b", 2100)])
    timed = timed.assign_timestamps_and_watermarks(
        STRATEGY.with_timestamp_assigner(lambda row, before: row[1])
    )
    batches = timed.to_arrow(kind, 2)
    with pytest.raises(PlanInvalid, match="records of this stream have no timestamps"):
        batches.to_records().key_by(lambda row: row.word).window(WINDOWS[0])
    again = batches.assign_timestamps_and_watermarks(STRATEGY, "at").to_records()
    windowed = again.key_by(lambda row: row.word).window(WINDOWS[0])
    found = list(windowed.process(Counted()).execute_and_collect())
    assert sorted(found) == [("a", 0, 1), ("a", 1000, 1), ("b", 2000, 1)]


class Counted(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, context.window().start, len(list(elements))


@pytest.mark.parametrize("windows", WINDOWS, ids=repr)
def test_results_of_windows_have_the_last_time_of_their_window(windows: Any) -> None:
    rows = [("a", 1, 2, at) for at in (100, 1100, 5100)] + [("b", 1, 2, 9000)]
    timed = columns_of(rows, 3).assign_timestamps_and_watermarks(STRATEGY, "at")
    records = timed.key_by("word").window(windows).count().to_records()
    for row, stamp in records.process(Stamped()).execute_and_collect():
        assert stamp == round(row.window_end.timestamp() * 1000) - 1


class Stamped(ProcessFunction[Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value, ctx.timestamp()


def test_batches_are_checked_against_the_schema() -> None:
    def stream(schema: Any, *batches: pa.RecordBatch) -> ColumnStream:
        return environment().from_collection(list(batches)).columns(schema)

    double = pa.record_batch({"n": [2.5]})
    known = pa.schema([("n", pa.int64())])
    with pytest.raises(BatchUnfit, match="it gave column 'n' of type double, and int64 was"):
        collected(stream(known, pa.record_batch({"n": [1]}), double))
    with pytest.raises(BatchUnfit, match="it gave a batch with the columns z int64, and n double"):
        collected(stream(None, double, pa.record_batch({"z": [1]})))
    words = pa.record_batch({"n": ["1"]})
    with pytest.raises(BatchUnfit, match="one of them is a text"):
        collected(stream(None, pa.record_batch({"n": [1]}), words).key_by("n").count())


def test_aggregates_need_no_uid_for_what_has_no_state(local_runtime: OneTaskRuntime) -> None:
    env = environment()
    env.get_config().disable_auto_generated_uids()
    table = table_of([("a", 1, 2, 3)])
    counts = env.from_arrow(table).uid("table").key_by("word").count().uid("counts")
    counts.to_records().uid("rows").print().uid("out")
    env.execute()
    assert local_runtime.printed


def test_the_buffer_timeout_may_be_set_later(local_runtime: OneTaskRuntime) -> None:
    env = environment()
    env.from_arrow(table_of([("a", 1, 2, 3)])).key_by("word").count().print()
    env.set_buffer_timeout(0)
    env.execute()
    (node,) = [
        node
        for node in local_runtime.programs[-1].graph.nodes.values()
        if node.name == "Aggregate within Batches"
    ]
    assert node.make()._timeout_ms == 0  # type: ignore[attr-defined]


def test_event_time_of_a_column_becomes_that_of_records() -> None:
    stream = columns_of([("a", 1, 2, 30), ("b", 1, 2, 20)])
    records = stream.assign_timestamps_and_watermarks(STRATEGY, "at").to_records()

    class Stamp:
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield value.word, ctx.timestamp()

    assert list(records.process(Stamp()).execute_and_collect()) == [("a", 30), ("b", 20)]  # type: ignore[arg-type]


def test_functions_get_tables_as_their_annotations_say() -> None:
    def of_pandas(frame: pandas.DataFrame) -> pandas.DataFrame:
        return frame.assign(amount=frame.amount * 2)

    def of_table(table: pa.Table) -> pa.Table:
        return table.filter(pc.field("number") > 1)

    rows = [("a", 1, 10, 0), ("b", 2, 20, 0)]
    found = collected(columns_of(rows).map_batches(of_pandas).map_batches(of_table))
    assert found == [("b", 2, 40, 0)]
    counted = columns_of(rows).map_batches(
        lambda frame: frame.groupby("word", as_index=False).size(),
        schema=pa.schema([("word", pa.string()), ("size", pa.int64())]),
        form="pandas",
    )
    assert sorted(collected(counted)) == [("a", 1), ("b", 1)]


def test_tagged_tables_go_to_a_side_output() -> None:
    def sort(batch: pa.RecordBatch) -> Any:
        odd = pc.equal(pc.bit_wise_and(batch["number"], 1), 1)
        yield TAG, batch.filter(odd).select(["word"])
        yield batch.filter(pc.invert(odd))

    stream = columns_of([("a", 1, 0, 0), ("b", 2, 0, 0)]).map_batches(sort)
    assert collected(stream.get_side_output(TAG)) == [("a",)]
    stream = columns_of([("a", 1, 0, 0), ("b", 2, 0, 0)]).map_batches(sort)
    assert [row[0] for row in collected(stream)] == ["b"]


def test_unions_and_keyed_batches_and_keyed_records() -> None:
    env = environment()
    first, second = (env.from_arrow(table_of([(word, 1, 2, 3), (word, 4, 5, 6)])) for word in "ab")
    united = first.union(second).rebalance().key_by("word").map_batches(lambda batch: batch)
    assert sorted(collected(united)) == [(w, *n) for w in "ab" for n in [(1, 2, 3), (4, 5, 6)]]
    keyed = env.from_arrow(table_of([("a", 1, 2, 3)])).key_by("word", "number").to_records()
    assert list(keyed.map(lambda row: row.amount).execute_and_collect()) == [2]
    assert keyed.key_of(Row(word="a", number=1)) == ("a", 1)
    single = env.from_arrow(table_of([("a", 1, 2, 3)])).key_by("word").to_records()
    assert single.key_of(Row(word="a", number=1)) == "a"


def test_a_sink_may_take_batches() -> None:
    class BatchSink(ListSink):
        takes_batches = True

    for sink, kind in ((BatchSink(), pa.RecordBatch), (ListSink(), Row)):
        stream = columns_of([("a", 1, 2, 3)])
        stream.sink_to(sink)
        stream.get_execution_environment().execute()
        assert {type(record) for record in sink.records} == {kind}


def test_windows_by_the_clock_have_bounds_too() -> None:
    windows = TumblingProcessingTimeWindows.of(Time.seconds(5))
    stream = columns_of([("a", 1, 2, 3)]).key_by("word").window(windows).count()
    assert stream.schema.names == ["word", "window_start", "window_end", "count"]


def test_windows_take_triggers_by_time_and_no_evictors() -> None:
    timed = columns_of([("a", 1, 2, 3)]).assign_timestamps_and_watermarks(STRATEGY, "at")
    windowed = timed.key_by("word").window(WINDOWS[0])
    assert windowed.trigger(EventTimeTrigger()).allowed_lateness(5) is windowed
    with pytest.raises(PlanInvalid, match="was given CountTrigger; give a trigger by time"):
        windowed.trigger(CountTrigger.of(3))
    with pytest.raises(PlanInvalid, match="have no evictor"):
        windowed.evictor(CountEvictor.of(3))


def test_late_rows_of_windows_have_the_columns_and_the_time_of_their_stream() -> None:
    timed = columns_of([("a", 1, 2, 3)]).assign_timestamps_and_watermarks(STRATEGY, "at")
    windowed = timed.key_by("word").window(WINDOWS[0])
    counted = windowed.side_output_late_data(TAG).count()
    assert collected(counted)[0][-1] == 1, "rows are folded where their windows are"
    late = counted.get_side_output(TAG)
    assert late.schema == SCHEMA
    late.key_by("word").window(WINDOWS[0])
    with pytest.raises(PlanInvalid, match="was given 'late'; give an OutputTag"):
        windowed.side_output_late_data("late")  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match="late rows have one side output only"):
        windowed.side_output_late_data(OutputTag("other"))
    clocked = timed.key_by("word").window(TumblingProcessingTimeWindows.of(Time.seconds(1)))
    with pytest.raises(PlanInvalid, match="no row is late in windows in processing time"):
        clocked.side_output_late_data(TAG)


@pytest.mark.parametrize("windows", WINDOWS, ids=repr)
@given(rows=ROWS, size=st.integers(1, 20))
def test_windows_with_a_side_output_give_the_same(windows: Any, rows: Rows, size: int) -> None:
    def found(sided: bool) -> list[Any]:
        stream = columns_of(rows, size).assign_timestamps_and_watermarks(STRATEGY, "at")
        windowed = stream.key_by("word", "number").window(windows)
        if sided:
            windowed.side_output_late_data(TAG)
        return sorted(collected(windowed.aggregate(n="count", top=("at", "max"))))

    assert found(True) == found(False)


def test_keyed_batches_have_no_null_keys_under_a_policy_either() -> None:
    stream = columns_of([(None, 1, 2, 3)]).key_by("word").map_batches(lambda batch: batch)
    with pytest.raises(BatchUnfit, match="column 'word' has 1 nulls in a batch of 1 rows, and a k"):
        collected(stream)


def test_settings_of_the_operator_are_said_on_the_stream(local_runtime: OneTaskRuntime) -> None:
    stream = columns_of([("a", 1, 2, 3)]).key_by("word").count().name("counts").uid("c")
    stream.print()
    stream.get_execution_environment().execute()
    nodes = local_runtime.programs[-1].graph.nodes.values()
    assert [node.uid for node in nodes if node.name == "counts"] == ["c"]
    names = [node.name for node in nodes]
    assert "Aggregate within Batches" in names


@pytest.mark.parametrize(
    ("write", "problem"),
    [
        (lambda s: s.select("nope"), r"select\(\): there is no column 'nope'; there are word str"),
        (lambda s: s.key_by("nope"), r"key_by\(\): there is no column 'nope'"),
        (lambda s: s.key_by(), "key_by() was given no column"),
        (lambda s: s.key_by(3), r"key_by\(\) was given \(3,\); give names of columns"),
        (lambda s: s.select(), "select.. was given no column"),
        (lambda s: s.filter(lambda row: True), "give an expression, such as col"),
        (lambda s: s.filter(col("nope") > 1), r"filter\(\): its expression cannot be computed"),
        (lambda s: s.with_column("x", col("word") * 2), r"with_column\(\): its expression cannot"),
        (lambda s: s.with_column("x", object()), "column 'x' was given <object"),
        (lambda s: s.map_batches(3), "map_batches.. was given 3; give a function of a table"),
        (lambda s: s.map_batches(len, form="csv"), "form='csv'; give one of"),
        (lambda s: s.key_by("word").sum("nope"), r"sum\(\): there is no column 'nope'"),
        (lambda s: s.key_by("word").sum(), r"sum\(\) was given nothing"),
        (lambda s: s.key_by("word").aggregate(x="sum"), "x='sum'; give a column and one of sum"),
        (lambda s: s.key_by("word").aggregate(x=("at", "median")), "median"),
        (lambda s: s.key_by("word").aggregate(word="count"), "columns word, word; rename some"),
        (lambda s: s.key_by("word").window(WINDOWS[0]), "no timestamps|no column of this stream"),
        (lambda s: s.key_by("word").window(GlobalWindows.create()), "give tumbling, sliding"),
        (
            lambda s: s.key_by("word").window(
                ProcessingTimeSessionWindows.with_gap(Time.seconds(1))
            ),
            "give tumbling, sliding or session",
        ),
        (lambda s: s.filter(col("amount")), "an expression that is a int64; give one that is true"),
        (lambda s: s.select("at", at=col("number")), "select.. was given 'at' twice"),
        (lambda s: s.key_by("number").sum("word"), r"aggregate\(\): its aggregates cannot be"),
        (lambda s: s.key_by("word").aggregate(x=3), "x=3; give a column and one of"),
        (lambda s: s.key_by("word").aggregate(x=("at", "sum", "z")), "give a column and one of"),
        (lambda s: s.assign_timestamps_and_watermarks(STRATEGY, "word"), "cannot be the event"),
        (
            lambda s: (
                s.assign_timestamps_and_watermarks(STRATEGY, "at")
                .with_column("at", col("number"))
                .key_by("word")
                .window(WINDOWS[0])
            ),
            "no column of this stream holds it",
        ),
        (
            lambda s: s.union(s.assign_timestamps_and_watermarks(STRATEGY, "at")),
            "assign timestamps after the union",
        ),
        (lambda s: s.union(3), "give another ColumnStream"),
        (lambda s: s.union(s.select("word")), "select.. the same columns of both"),
        (lambda s: s.assign_timestamps_and_watermarks(STRATEGY, "nope"), "no column 'nope'"),
        (
            lambda s: s.select(f=col("amount") / 2.5).key_by("f"),
            "of type (float|double) cannot be a key",
        ),
    ],
)
def test_mistakes_are_found_when_the_program_is_written(write: Any, problem: str) -> None:
    with pytest.raises(PlanInvalid, match=problem.replace("() was given no", r"\(\) was given no")):
        write(columns_of([("a", 1, 2, 3)]))


def test_without_a_schema_mistakes_are_found_when_the_job_runs() -> None:
    def stream() -> ColumnStream:
        return environment().from_collection(batches_of([("a", 1, 2, 3)], 1)).columns()

    with pytest.raises(PlanInvalid, match="this stream has no schema"):
        stream().with_column("x", 1)
    with pytest.raises(PlanInvalid, match="give it one, for instance"):
        stream().to_dataframe()
    with pytest.raises(BatchUnfit, match="column 'nope' is not there in a batch with the columns"):
        collected(stream().key_by("nope").count())
    with pytest.raises(BatchUnfit, match="column 'nope' is not there"):
        collected(stream().select("nope"))
    assert collected(stream().key_by("word").sum("amount")) == [("a", 2)]


def test_records_that_are_no_batches_are_refused() -> None:
    for use in (
        lambda s: s.map_batches(lambda batch: batch),
        lambda s: s.key_by("word").count(),
        lambda s: s,
    ):
        stream = environment().from_collection([("a", 1)]).columns()
        with pytest.raises(BatchUnfit, match="a tuple came, and an Arrow batch was expected; make"):
            collected(use(stream))


@pytest.mark.parametrize("table", [3, [], [1], "text"])
def test_from_arrow_takes_tables(table: Any) -> None:
    with pytest.raises(PlanInvalid, match=r"from_arrow\(\) was given"):
        environment().from_arrow(table)


def test_to_arrow_wants_a_size() -> None:
    with pytest.raises(PlanInvalid, match="rows=0; give a whole number above 0"):
        environment().from_collection([1]).to_arrow(SCHEMA, 0)


@pytest.mark.parametrize("value", [Decimal(7), Decimal(7 * 10**30)])
def test_decimals_without_a_declared_schema_stay_decimals(value: Decimal) -> None:
    batch = pa.record_batch({"word": ["a"], "price": pa.array([value], pa.decimal128(38, 0))})
    stream = environment().from_collection([batch, batch]).columns()
    assert stream.schema is None
    aggregates: dict[str, Any] = {kind: ("price", kind) for kind in ("sum", "min", "max")}
    *_, last = collected(stream.key_by("word").aggregate(**aggregates))
    assert last == ("a", 2 * value, value, value)
    assert [type(found) for found in last[1:]] == [Decimal] * 3


@pytest.mark.parametrize("case", ["alone", "read twice", "shipped", "other policy", "has times"])
def test_a_strategy_right_after_a_source_that_nothing_else_reads_is_for_each_split(
    case: str,
) -> None:
    env = environment()
    own = WatermarkStrategy.no_watermarks() if case == "has times" else None
    source = NumberSequenceSource(1, 9)
    stream = env.from_source(source, own, "batches").columns()  # type: ignore[arg-type]
    if case == "read twice":
        stream.map_batches(lambda batch: batch).print()
    if case == "shipped":
        stream = stream.rebalance().map_batches(lambda batch: batch)
    timed = stream.assign_timestamps_and_watermarks(STRATEGY, "at")
    if case == "other policy":
        timed.on_error(ErrorPolicy.SKIP)
    timed.to_records().print()
    specs = [spec for vertex in env.get_job_graph().vertices for spec in vertex.chain.operators]
    kinds = {type(spec.make()) for spec in specs}
    assert (TimedOperator in kinds) == (case == "alone")
    assert (TimestampsOperator in kinds) != (case == "alone")
    env.close()
