"""Operators between batches and records: order, times, and what waits for a full batch."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import Bundle, StreamStatus, Watermark
from headgate.base.errors import BatchUnfit, StateChanged
from headgate.connectors.arrow.columns import BatchMaker, RowMaker
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.left_out import RecordFailures
from headgate.core.chain.operator import Operator
from headgate.core.columns import operators
from headgate.core.columns.aggregates import (
    ColumnAggregate,
    PartialAggregation,
    PartialRecords,
    Slices,
)
from headgate.core.columns.batches import BatchSerializer
from headgate.core.columns.keys import ColumnPartitioner
from headgate.core.columns.operators import (
    LATE_PARTIALS,
    PIECE_ROWS,
    BatchesOperator,
    MergedPartialsOperator,
    PartialsOperator,
    RecordsOperator,
    ResultBatches,
)
from headgate.core.columns.times import EventTime, PartialSessions
from headgate.core.operators.reduce import ReduceOperator
from headgate.core.window.operator import WindowOperator
from headgate.core.window.spec import Reduced, WindowPlan
from headgate.functions.assigners import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from headgate.functions.context import SnapshotMoment, TaskInfo
from headgate.functions.error_policy import ErrorPolicy
from headgate.functions.function import OutputTag
from headgate.functions.triggers import EventTimeTrigger
from tests.core.chain.restore_kit import OperatorTasks, Send
from tests.core.columns.kit import KeptOutput

SCHEMA = pa.schema([("n", pa.int64())])
WATERMARK = Watermark(7)


def opened(operator: Operator, later: Any = None) -> tuple[Any, KeptOutput]:
    output = KeptOutput()
    operator.set_up(output)
    context = OperatorContext("test", TaskInfo("job", "test", 0, 1), lambda: 0)
    operator.open(context if later is None else replace(context, later=later))
    return operator, output


def test_rows_become_records_in_pieces_with_the_times_of_a_column() -> None:
    operator, output = opened(RecordsOperator(RowMaker, EventTime("n", -1)))
    rows = PIECE_ROWS + 10
    operator.process(Bundle([pa.record_batch({"n": range(rows)})]), 0)
    assert [row.n for row in output.log] == list(range(rows))
    assert [len(bundle.records) for bundle in output.bundles] == [PIECE_ROWS, 10]
    assert output.bundles[1].timestamps == list(range(PIECE_ROWS - 1, rows - 1))


class Later:
    """The clock of a test."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def __call__(self, wait_ms: float, call: Callable[[], None]) -> None:
        self.calls.append((wait_ms, call))


def batching(rows: int = 3, timeout_ms: int = 100) -> tuple[Any, KeptOutput, Later]:
    later = Later()
    operator, output = opened(BatchesOperator(BatchMaker(SCHEMA), rows, timeout_ms), later)
    return operator, output, later


def sizes(output: KeptOutput) -> list[Any]:
    return [each.num_rows if isinstance(each, pa.RecordBatch) else each for each in output.log]


def test_batches_leave_when_they_are_full() -> None:
    operator, output, _ = batching()
    operator.process(Bundle([1, 2]), 0)
    assert output.log == []
    operator.process(Bundle([3, 4, 5, 6, 7], [1, 9, 2, None, 3]), 0)
    assert sizes(output) == [3, 3]
    assert [bundle.timestamps for bundle in output.bundles] == [None, None]
    operator.finish()
    assert [row["n"] for each in output.log for row in each.to_pylist()] == list(range(1, 8))


@pytest.mark.parametrize(
    "event",
    [
        lambda operator: operator.watermark_advanced(WATERMARK),
        lambda operator: operator.status_changed(StreamStatus(False)),
        lambda operator: operator.before_barrier(SnapshotMoment(1, 1)),
        lambda operator: operator.finish(),
    ],
)
def test_records_that_wait_leave_before_anything_else(event: Any) -> None:
    operator, output, _ = batching()
    operator.process(Bundle([1, 2]), 0)
    event(operator)
    assert sizes(output)[0] == 2


def test_records_wait_no_longer_than_the_buffer_timeout() -> None:
    operator, output, later = batching()
    operator.process(Bundle([1]), 0)
    operator.process(Bundle([2]), 0)
    ((wait_ms, tick),) = later.calls
    assert wait_ms == 100
    tick()
    assert sizes(output) == [2]
    operator.process(Bundle([3]), 0)
    assert len(later.calls) == 2
    operator.close()
    later.calls[1][1]()
    assert sizes(output) == [2], "nothing is sent after the end"


def test_without_a_timeout_each_bundle_leaves_at_once() -> None:
    operator, output, later = batching(timeout_ms=0)
    operator.process(Bundle([1]), 0)
    assert sizes(output) == [1]
    assert later.calls == []


def test_partials_of_several_batches_are_folded_until_they_leave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    later = Later()
    operator, output = opened(PartialsOperator(AGGREGATION, 100), later)
    batch = pa.record_batch({"k": ["a", "b"], "n": [1, 2]})
    operator.process(Bundle([batch, batch]), 0)
    operator.process(Bundle([batch]), 0)
    assert output.log == []
    later.calls[0][1]()
    (folded,) = output.log
    assert sorted(map(tuple, folded.to_pandas().to_numpy().tolist())) == [("a", 3), ("b", 6)]
    operator.process(Bundle([batch]), 0)
    operator.watermark_advanced(WATERMARK)
    assert output.log[1:] == [AGGREGATION.partial(batch), WATERMARK]
    monkeypatch.setattr(operators, "HELD_ROWS", 5)
    for number in range(10):
        keys = pa.record_batch({"k": [f"k{number}", "same"], "n": [1, 1]})
        operator.process(Bundle([keys]), 0)
    assert sum(each.num_rows for each in output.log[3:]) >= 8, "many keys do not pile up"
    operator.finish()
    total = sum(sum(each.column(1).to_pylist()) for each in output.log[3:])
    assert total == 20


AGGREGATION = PartialAggregation(("k",), (ColumnAggregate("total", "sum", "n"),))


def merging(batch: bool, types: list[Any]) -> tuple[Any, KeptOutput]:
    records = PartialRecords(AGGREGATION)
    results = ResultBatches(records, ["k", "total"], types)

    def make() -> Operator:
        return ReduceOperator(records.merge, records.key_of, batch)

    return opened(MergedPartialsOperator(make, records, results, False))


@pytest.mark.parametrize("batch", [False, True])
def test_partials_are_merged_by_key_into_batches(batch: bool) -> None:
    folding, partials = opened(PartialsOperator(AGGREGATION))
    folding.process(Bundle([pa.record_batch({"k": ["a", "b", "a"], "n": [1, 2, 3]})]), 0)
    folding.process(Bundle([pa.record_batch({"k": pa.array([], pa.string()), "n": []})]), 0)
    folding.process(Bundle([pa.record_batch({"k": ["a"], "n": [10]})]), 0)
    assert len(partials.bundles) == 2, "an empty batch has no partials"
    operator, output = merging(batch, [pa.string(), pa.int64()])
    for bundle in partials.bundles:
        operator.process(bundle, 0)
    operator.end_input(0)
    operator.finish()
    found = [tuple(row.values()) for each in output.log for row in each.to_pylist()]
    if batch:
        assert sorted(found) == [("a", 14), ("b", 2)]
    else:
        assert sorted(found) == [("a", 4), ("a", 14), ("b", 2)]


def test_results_leave_in_batches_of_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "HELD_ROWS", 100)
    operator, output = merging(True, [None, None])
    keys = [f"k{number}" for number in range(250)]
    operator.process(Bundle([pa.record_batch({"key0": keys, "0": range(250)})]), 0)
    operator.finish()
    assert [each.num_rows for each in output.log] == [100, 100, 50]
    assert {each.schema.field(1).type for each in output.log} == {pa.int64()}


def test_types_do_not_change_between_batches() -> None:
    operator, output = merging(False, [None, None])
    for value in (None, 5, None):
        operator.process(
            Bundle([pa.record_batch({"key0": ["a"], "0": pa.array([value], pa.int32())})]), 0
        )
    assert {each.schema.field(1).type for each in output.log} == {pa.int32()}


def test_state_is_that_of_the_operator_within() -> None:
    operator, _ = merging(False, [None, None])
    operator.process(Bundle([pa.record_batch({"key0": ["a"], "0": [4]})]), 0)
    moment = SnapshotMoment(1, 1)
    operator.before_barrier(moment)
    snapshot = operator.snapshot(moment)
    assert snapshot.keyed is not None
    operator.checkpoint_completed(1)
    operator.checkpoint_aborted(2)
    assert operator.state_reader() is not None
    operator.state_bytes()
    operator.close()


def test_watermarks_and_markers_pass_through_the_operator_within() -> None:
    operator, output = merging(False, [None, None])
    operator.watermark_advanced(WATERMARK)
    operator.status_changed(StreamStatus(False))
    assert output.log == [WATERMARK, StreamStatus(False)]


def test_sums_that_do_not_fit_their_column_are_refused() -> None:
    operator, _ = merging(False, [pa.string(), pa.int64()])
    operator.process(Bundle([pa.record_batch({"key0": ["a"], "0": [2**62]})]), 0)
    with pytest.raises(BatchUnfit, match="values of column 'total' do not fit int64.*wider type"):
        operator.process(Bundle([pa.record_batch({"key0": ["a"], "0": [2**62]})]), 0)


def tasks_of(
    *aggregates: ColumnAggregate, parallelism: int = 1, states: Any = None
) -> tuple[OperatorTasks, PartialAggregation]:
    aggregation = PartialAggregation(("k",), aggregates)
    records = PartialRecords(aggregation)
    names = ["k", *(each.name for each in aggregates)]

    def make() -> Operator:
        results = ResultBatches(records, names, [None] * len(names))
        inner = lambda: ReduceOperator(records.merge, records.key_of, False)  # noqa: E731
        return MergedPartialsOperator(inner, records, results, False)

    def key_of(batch: pa.RecordBatch) -> Any:
        return batch.column(0)[0].as_py()

    return OperatorTasks(make, (key_of,), parallelism, states=states), aggregation


COUNT, TOTAL = ColumnAggregate("n", "count"), ColumnAggregate("total", "sum", "x")


def sent(tasks: OperatorTasks, aggregation: PartialAggregation) -> dict[str, Any]:
    """The running aggregates after a row of 10 for each key."""
    for key in "abcdef":
        row = pa.record_batch({"k": [key], "x": [10]})
        tasks.apply(Send([(aggregation.partial(row), None)]))
    return {batch["k"][0].as_py(): batch.to_pylist()[0] for _, batch, _ in tasks.seen}


@pytest.mark.parametrize("sizes", [(1, 1), (1, 3), (3, 2)])
def test_aggregates_go_on_in_more_or_fewer_tasks_and_in_another_order(
    sizes: tuple[int, int],
) -> None:
    before, aggregation = tasks_of(COUNT, TOTAL, parallelism=sizes[0])
    sent(before, aggregation)
    after, aggregation = tasks_of(TOTAL, COUNT, parallelism=sizes[1], states=before.stored_states())
    found = sent(after, aggregation)
    assert found == {key: {"k": key, "total": 20, "n": 2} for key in "abcdef"}


@pytest.mark.parametrize("others", [(TOTAL,), (COUNT,), (ColumnAggregate("x", "max", "x"), COUNT)])
def test_other_aggregates_are_refused(others: tuple[ColumnAggregate, ...]) -> None:
    before, aggregation = tasks_of(COUNT, TOTAL)
    sent(before, aggregation)
    with pytest.raises(StateChanged, match="sum of 'x', count_all there"):
        tasks_of(*others, states=before.stored_states())


LATE_TAG = "late rows"
WINDOWS = [
    (TumblingEventTimeWindows(100), Slices(EventTime("at"), 100), 100),
    (SlidingEventTimeWindows(90, 60), Slices(EventTime("at"), 30), 90),
    (PartialSessions(40), Slices(EventTime("at"), gap_ms=40), 0),
]


def window_tasks(windows: Any, lateness_ms: int, tag: str | None) -> tuple[Any, KeptOutput, Any]:
    """An operator that merges partials in windows, its output, and what makes what it is sent."""
    assigner, slices, size_ms = windows
    aggregation = PartialAggregation(("k",), (COUNT, TOTAL), slices)
    records = PartialRecords(aggregation)
    plan = WindowPlan(
        records.key_of,
        assigner,
        EventTimeTrigger(),
        Reduced(records.merge),
        lateness_ms=lateness_ms,
        late_tag=LATE_PARTIALS,
    )
    names = ["k", "window_start", "window_end", "n", "total"]
    results = ResultBatches(records, names, [None] * 5, size_ms, slices.gap_ms)
    operator = MergedPartialsOperator(
        lambda: WindowOperator(plan), records, results, True, aggregation if tag else None, tag
    )
    merged, output = opened(operator)
    return merged, output, (lambda batch: batch) if tag else aggregation.partial


TIMED_ROWS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.integers(0, 500)),
    min_size=1,
    max_size=15,
)


@given(
    windows=st.sampled_from(WINDOWS),
    sent=st.lists(TIMED_ROWS | st.integers(1, 120), max_size=8),
    lateness_ms=st.sampled_from([0, 50]),
)
def test_late_rows_are_those_of_windows_of_records(
    windows: Any, sent: list[Any], lateness_ms: int
) -> None:
    sided, side_output, _ = window_tasks(windows, lateness_ms, LATE_TAG)
    counting, _, partial = window_tasks(windows, lateness_ms, None)
    assigner = windows[0] if windows[2] else EventTimeSessionWindows(40)
    plan = WindowPlan(
        lambda row: row[0],
        assigner,
        EventTimeTrigger(),
        Reduced(lambda first, second: first),
        lateness_ms=lateness_ms,
        late_tag="late",
    )
    twin, twin_output = opened(WindowOperator(plan))
    watermark = 0
    for action in sent:
        if isinstance(action, int):
            watermark += action
            for operator in (sided, counting, twin):
                operator.watermark_advanced(Watermark(watermark))
            continue
        keys, values, times = map(list, zip(*action, strict=True))
        batch = pa.record_batch({"k": keys, "x": values, "at": times})
        sided.process(Bundle([batch]), 0)
        counting.process(Bundle([partial(batch)]), 0)
        together = sorted(action, key=lambda row: row[2], reverse=True)
        twin.process(Bundle(together, [row[2] for row in together]), 0)
    expected = sorted(
        record
        for each in twin_output.log
        if type(each) is tuple and each[0] == "late"
        for record in [each[1]]
    )
    late = [each[1] for each in side_output.log if type(each) is tuple and each[0] == LATE_TAG]
    assert sorted(tuple(row.values()) for batch in late for row in batch.to_pylist()) == expected
    assert counting.late.count == len(expected)
    assert sided.late.count == 0
    for operator in (sided, counting, twin):
        operator.close()


def test_the_gauge_counts_rows_and_not_partial_ones() -> None:
    operator, _, partial = window_tasks(WINDOWS[0], 0, None)
    operator.watermark_advanced(Watermark(500))
    late = pa.record_batch({"k": ["a"] * 7, "x": [1] * 7, "at": [5] * 7})
    operator.process(Bundle([partial(late)]), 0)
    gauges = operator.context.metrics._gauges
    assert gauges["numLateRecordsDropped"]() == 7
    twin = WindowOperator(
        WindowPlan(lambda row: row[0], WINDOWS[0][0], EventTimeTrigger(), Reduced(lambda a, b: a))
    )
    opened(twin)
    twin.watermark_advanced(Watermark(500))
    twin.process(Bundle([("a", 1)], [5]), 0)
    assert operator.late.most_ms == twin.late.most_ms > 0, "rows are as late as records"


def under_policy(operator: Operator) -> tuple[Any, KeptOutput]:
    output = KeptOutput()
    policy = ErrorPolicy.dead_letters(OutputTag("letters"))
    operator.failures = RecordFailures(policy, "test", output, True)
    context = OperatorContext("test", TaskInfo("job", "test", 0, 1), lambda: 0)
    operator.set_up(output)
    operator.failures.open(context)
    operator.open(context)
    return operator, output


def letters(output: KeptOutput) -> list[Any]:
    return [each[1] for each in output.log if type(each) is tuple and each[0] == "letters"]


def test_a_policy_leaves_out_batches_that_have_no_records() -> None:
    operator, output = under_policy(RecordsOperator(RowMaker, EventTime("n")))
    late_null = pa.record_batch({"n": [*range(PIECE_ROWS), None]})
    operator.process(Bundle([late_null, pa.record_batch({"n": [7]}), 5]), 0)
    assert [row.n for row in output.log if not isinstance(row, tuple) or row[0] != "letters"] == [7]
    first, second = letters(output)
    assert first.record == late_null and "'test': column 'n', which holds" in first.reason
    assert "a int came" in second.reason


def test_a_policy_leaves_out_the_records_that_fit_no_batch() -> None:
    operator, output = under_policy(BatchesOperator(BatchMaker(SCHEMA), 3, 100))
    operator.process(Bundle([1, "two", 3, "four"]), 0)
    operator.finish()
    batches = [each for each in output.log if isinstance(each, pa.RecordBatch)]
    assert [each["n"].to_pylist() for each in batches] == [[1, 3]]
    assert [(each.record, each.raw) for each in letters(output)] == [("two", None), ("four", None)]


def test_batches_that_cannot_be_folded_are_left_to_the_policy_of_the_aggregate() -> None:
    folding, partials = opened(PartialsOperator(AGGREGATION, 100))
    nulls = pa.record_batch({"k": ["a", None], "n": [1, 2]}).replace_schema_metadata({"by": "me"})
    good = pa.record_batch({"k": ["a"], "n": [3]})
    folding.process(Bundle([good, nulls]), 0)
    folding.finish()
    router = ColumnPartitioner(AGGREGATION.key_names, reader="aggregate")
    router.set_up(1)
    sent = [
        batch
        for bundle in partials.bundles
        for _, some, _ in router.split(bundle.records, None)
        for batch in some
    ]
    sent = BatchSerializer().loads(memoryview(BatchSerializer().dumps(sent)))
    records = PartialRecords(AGGREGATION)

    def make() -> MergedPartialsOperator:
        results = ResultBatches(records, ["k", "total"], [None, None])
        inner = lambda: ReduceOperator(records.merge, records.key_of, False)  # noqa: E731
        return MergedPartialsOperator(inner, records, results, False)

    operator, output = under_policy(make())
    operator.process(Bundle(sent), 0)
    (letter,) = letters(output)
    assert letter.record.schema.metadata == {b"by": b"me"}
    assert "operator 'test': column 'k' has 1 nulls in a batch of 2 rows" in letter.reason
    assert [each.to_pylist() for each in output.log if isinstance(each, pa.RecordBatch)] == [
        [{"k": "a", "total": 3}]
    ]
    failing, _ = opened(make())
    with pytest.raises(BatchUnfit, match="operator 'test': column 'k' has 1 nulls"):
        failing.process(Bundle(sent), 0)
