"""Joins of columns by window give what joins of records give, also restored in other tasks."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import MAX_WATERMARK_MS, Bundle, Watermark
from headgate.base.errors import BatchUnfit, StateChanged
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.left_out import RecordFailures
from headgate.core.columns import window_join, window_rows
from headgate.core.columns.joined_columns import JOIN_KINDS, JoinedColumns
from headgate.core.columns.times import EventTime
from headgate.core.columns.window_join import JoinSide, JoinWindows, WindowJoinOperator
from headgate.core.window.operator import CoGroupCall, JoinedWindowOperator, SidedKey
from headgate.core.window.spec import Listed, WindowCall, WindowPlan
from headgate.functions.assigners import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from headgate.functions.context import TaskInfo
from headgate.functions.error_policy import ErrorPolicy
from headgate.functions.function import OutputTag
from headgate.functions.triggers import EventTimeTrigger
from tests.core.chain.restore_kit import OperatorTasks, Send
from tests.core.columns.join_kit import (
    COLUMNS,
    LATE,
    LEFT,
    ROWS,
    ColumnTasks,
    Row,
    batch_of,
    rows_of,
    sides,
    tasks,
)
from tests.core.columns.kit import KeptOutput


def window_of(assigner: Any, lateness_ms: int) -> JoinWindows:
    if isinstance(assigner, EventTimeSessionWindows):
        return JoinWindows(gap_ms=assigner.gap_ms, lateness_ms=lateness_ms)
    slide_ms = getattr(assigner, "slide_ms", assigner.size_ms)
    return JoinWindows(assigner.size_ms, slide_ms, assigner.offset_ms, 0, lateness_ms)


class Twins:
    """A join of columns and the same of records, and what both have emitted for the last action."""

    def __init__(self, assigner: Any, lateness_ms: int, how: Any) -> None:
        self.how = how
        columns = JoinedColumns(("k",), ("k",), how)
        windows = window_of(assigner, lateness_ms)
        plan = WindowPlan(
            SidedKey(lambda row: row[0], lambda row: row[0]),
            assigner,
            EventTimeTrigger(),
            Listed(),
            WindowCall("apply", CoGroupCall(lambda left, right: [(left, right)])),
            lateness_ms=lateness_ms,
            late_tag="late",
        )
        self._makes = (
            lambda: WindowJoinOperator(windows, sides(), columns),
            lambda: JoinedWindowOperator(plan),
        )
        self._gap_ms = windows.gap_ms
        self._size_ms = windows.size_ms
        self._open(1, None, None)

    def _open(self, parallelism: int, states: Any, others: Any) -> None:
        make, make_twin = self._makes
        keys = (lambda row: row[0],) * 2
        self.columns = ColumnTasks(make, keys, parallelism, states=states)
        self.records = OperatorTasks(make_twin, keys, parallelism, states=others)

    def restore(self, parallelism: int) -> None:
        states = self.columns.stored_states(), self.records.stored_states()
        self.columns.close()
        self.records.close()
        self._open(parallelism, *states)

    def send(self, side: int, rows: list[Row]) -> None:
        self.columns.apply(Send([(batch_of(side, rows), None)], side))
        together = sorted(rows, key=lambda row: row[2], reverse=True)
        self.records.apply(Send([(row, row[2]) for row in together], side))

    def watermark(self, at: int) -> None:
        self.columns.apply(Watermark(at))
        self.records.apply(Watermark(at))

    def compare(self) -> None:
        assert self._found() == self._expected()
        self.columns.seen.clear()
        self.records.seen.clear()

    def _found(self) -> Counter[Any]:
        found: Counter[Any] = Counter()
        for tag, batch, _ in self.columns.seen:
            for row in batch.to_pylist():
                values = tuple(row.values())
                if tag is not None:
                    side = LATE.index(tag)
                    found["late", side, values if side == 0 else (values[0], *values[:0:-1])] += 1
                    continue
                bounds = [int(at.timestamp() * 1000) for at in values[-2:]]
                found[(*values[:-2], *bounds)] += 1
        return found

    def _expected(self) -> Counter[Any]:
        last: dict[Any, Any] = {}
        found: Counter[Any] = Counter()
        for tag, value, time_ms in self.records.seen:
            if tag is not None:
                found["late", value[0], value[1]] += 1
            else:
                last[(*value[0], *value[1])[0][0], time_ms] = value
        for (key, time_ms), (left, right) in last.items():
            end = time_ms + 1
            start = end - self._size_ms
            if self._gap_ms:
                start = min(row[2] for row in (*left, *right))
            found.update((key, *pair, start, end) for pair in paired(left, right, self.how))
        return found

    def close(self) -> None:
        self.columns.close()
        self.records.close()


def paired(left: list[Row], right: list[Row], how: str) -> Iterator[tuple[Any, ...]]:
    """``l, at, at_right, r`` of each pair."""
    for row in left:
        for other in right:
            yield row[1], row[2], other[2], other[1]
    if not right and how in ("left", "full"):
        yield from ((row[1], row[2], None, None) for row in left)
    if not left and how in ("right", "full"):
        yield from ((None, None, row[2], row[1]) for row in right)


WINDOWS = [
    TumblingEventTimeWindows(100),
    TumblingEventTimeWindows(70, 30),
    SlidingEventTimeWindows(90, 60),
    SlidingEventTimeWindows(100, 20, -10),
    SlidingEventTimeWindows(50, 200),
    EventTimeSessionWindows(40),
]
ACTIONS = st.lists(
    st.tuples(st.sampled_from([0, 1]), ROWS)
    | st.integers(1, 90)
    | st.sampled_from(["1 task", "2 tasks", "3 tasks"]),
    max_size=12,
)


@pytest.mark.parametrize("assigner", WINDOWS, ids=repr)
@given(
    actions=ACTIONS,
    lateness_ms=st.sampled_from([0, 30, 150]),
    how=st.sampled_from(JOIN_KINDS),
    begin=st.integers(-150, 200),
)
def test_joins_are_those_of_records(
    assigner: Any, actions: list[Any], lateness_ms: int, how: Any, begin: int
) -> None:
    run(Twins(assigner, lateness_ms, how), actions, begin)


@pytest.mark.parametrize("assigner", WINDOWS[::2] + WINDOWS[-1:], ids=repr)
@given(actions=ACTIONS, lateness_ms=st.sampled_from([0, 150]), most=st.integers(0, 2_000))
def test_joins_that_do_not_fit_in_memory_are_the_same(
    assigner: Any, actions: list[Any], lateness_ms: int, most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window_rows, "MEMORY_BYTES", most)
        patch.setattr(window_join, "MEMORY_BYTES", most)
        run(Twins(assigner, lateness_ms, "full"), actions, 0)


def run(twins: Twins, actions: list[Any], begin: int) -> None:
    watermark = begin
    for action in actions:
        if isinstance(action, int):
            watermark += action
            twins.watermark(watermark)
        elif isinstance(action, str):
            twins.restore(int(action[0]))
        else:
            twins.send(*action)
        twins.compare()
    twins.watermark(MAX_WATERMARK_MS)
    twins.compare()
    for operator in twins.columns.operators:
        assert operator._rows.slices() == [], "nothing is held at the end"
    twins.close()


@pytest.mark.parametrize("windows", [JoinWindows(100, 50), JoinWindows(gap_ms=50, lateness_ms=90)])
def test_windows_fire_once_though_tasks_were_at_different_times(windows: JoinWindows) -> None:
    """With unaligned checkpoints tasks of one operator may have different event times."""
    keys = set("abcdefghijkl")
    before = tasks(windows, parallelism=2)
    for side in (0, 1):
        before.apply(Send([(batch_of(side, [(key, side, 60) for key in keys]), None)], side))
    before.operators[0].watermark_advanced(Watermark(120))
    fired = {row[0] for row in rows_of(before)}
    assert 0 < len(fired) < len(keys)
    after = tasks(windows, parallelism=1, states=before.stored_states())
    if not windows.gap_ms:
        after.apply(Send([(batch_of(0, [(key, 2, 10) for key in keys]), None)], 0))
        assert after.operators[0].late.count == len(fired), "late is what was late before"
    after.apply(Watermark(115))
    found = rows_of(after)
    assert sorted(row[0] for row in found if row[1] == 0) == sorted(keys - fired)
    assert len(found) == (1 if windows.gap_ms else 2) * len(keys - fired)
    after.apply(Watermark(120))
    assert rows_of(after) == []
    after.apply(Watermark(MAX_WATERMARK_MS))
    assert len(rows_of(after)) == (0 if windows.gap_ms else len(keys))


def test_late_rows_are_counted_where_they_have_no_side_output() -> None:
    join = tasks()
    join.apply(Watermark(150))
    rows: list[Row] = [("a", 1, 50), ("b", 2, 99), ("c", 3, 100)]
    join.apply(Send([(batch_of(1, rows), None)], 1))
    (operator,) = join.operators
    assert operator.late.count == 2
    assert operator.late.most_ms == 150 - 99 + 1, "since the end of their window"


@pytest.mark.parametrize("windows", [JoinWindows(100, 100), JoinWindows(gap_ms=100)])
def test_after_the_end_of_event_time_no_lateness_would_have_helped(windows: JoinWindows) -> None:
    join = tasks(windows)
    join.apply(Watermark(MAX_WATERMARK_MS))
    join.apply(Send([(batch_of(1, [("a", 1, 50)]), None)], 1))
    (operator,) = join.operators
    assert (operator.late.count, operator.late.most_ms) == (1, 0)


@pytest.mark.parametrize("windows", [JoinWindows(100, 100), JoinWindows(gap_ms=100)])
def test_all_rows_are_in_state_when_a_snapshot_is_taken(windows: JoinWindows) -> None:
    join = tasks(windows)
    join.apply(Send([(batch_of(0, [("a", 1, 50)]), None)], 0))
    (operator,) = join.operators
    assert operator._rows.waiting_bytes > 0
    held = operator.state_bytes()
    (state,) = join.stored_states()
    assert state.groups and operator._rows.waiting_bytes == 0
    assert held is None or held > 0


def test_other_slices_are_refused() -> None:
    join = tasks(JoinWindows(100, 100))
    join.apply(Send([(batch_of(0, [("a", 1, 50)]), None)], 0))
    states = join.stored_states()
    tasks(JoinWindows(300, 100, -200), states=states).close()
    with pytest.raises(StateChanged, match="rows in slices of 100 ms from 0 ms there and is .*120"):
        tasks(JoinWindows(120, 120), states=states)
    with pytest.raises(StateChanged, match="is rows of .*rows of sessions now"):
        tasks(JoinWindows(gap_ms=100), states=states)


def unfit(batch: Any, message: str, side: int = 0, both: Any = None) -> None:
    join = tasks(sides=both or sides())
    join.apply(Send([(batch_of(1, [("a", 1, 10)]), None)], 1))
    with pytest.raises(BatchUnfit, match=message):
        join.operators[0].process(Bundle([batch]), side)
    join.apply(Send([(batch_of(0, [("a", 2, 11)]), None)], 0))
    join.apply(Watermark(MAX_WATERMARK_MS))
    assert rows_of(join) == [("a", 2, 11, 10, 1)], "what did not fit has changed nothing"


def test_batches_that_do_not_fit_are_refused_with_operator_column_and_advice() -> None:
    good = batch_of(0, [("a", 1, 50)])
    unfit(7, "operator '.+': a int came, and an Arrow batch was expected")
    unfit(good.drop_columns(["k"]), "operator '.+': column 'k' is not there .* columns l int64")
    unfit(good.drop_columns(["at"]), "operator '.+': column 'at' is not there")
    unfit(good.drop_columns(["l"]), "its left input gave a batch with the columns k string, at")
    nulls = pa.RecordBatch.from_arrays(
        [pa.array([None], pa.string()), *good.columns[1:]], LEFT.names
    )
    unfit(nulls, "column 'k' has 1 nulls in a batch of 1 rows, and a key cannot be null")
    untimed = pa.RecordBatch.from_pylist([{"k": "a", "l": 1, "at": None}], LEFT)
    unfit(untimed, "column 'at', which holds the event time, has 1 nulls")
    other = pa.RecordBatch.from_pylist([{"k": "a", "l": 1, "at": "x"}])
    unfit(other, "column 'at' of type string cannot be the event time")


def test_undeclared_columns_are_those_of_the_first_batches() -> None:
    both = [JoinSide(("k",), EventTime("at")), JoinSide(("k",), EventTime("at"))]
    numbers = pa.RecordBatch.from_pylist([{"k": 7, "l": 1, "at": 3}])
    unfit(
        numbers,
        "'k' of type int64 on the left and 'k' of type string on the right .* never",
        0,
        both,
    )
    twice = pa.RecordBatch.from_pylist([{"k": "a", "at_right": 1, "at": 3}])
    unfit(twice, "column 'at_right' more than once; rename", 0, both)


def test_a_policy_leaves_out_whole_batches_and_says_why() -> None:
    operator, output = WindowJoinOperator(JoinWindows(100, 100), sides(), COLUMNS), KeptOutput()
    policy = ErrorPolicy.dead_letters(OutputTag("letters"))
    operator.failures = RecordFailures(policy, "join", output, True)
    operator.set_up(output)
    context = OperatorContext("join", TaskInfo("job", "join", 0, 1), lambda: 0)
    operator.failures.open(context)
    operator.open(context)
    bad = pa.RecordBatch.from_pylist(
        [{"k": None, "l": 1, "at": 5}, {"k": "a", "l": 2, "at": 5}], LEFT
    )
    operator.process(Bundle([bad, batch_of(0, [("a", 3, 6)])]), 0)
    operator.process(Bundle([batch_of(1, [("a", 4, 7)])]), 1)
    operator.watermark_advanced(Watermark(MAX_WATERMARK_MS))
    (tag, letter), pairs, _ = output.log
    assert tag == "letters" and letter.record == bad
    assert "'join': column 'k' has 1 nulls in a batch of 2 rows" in letter.reason
    assert pairs["l"].to_pylist() == [3]
    operator.close()
