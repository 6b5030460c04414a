"""Joins of columns for tests: two streams of keys, numbers and times, and the tasks that join."""

from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from headgate.base.elements import Bundle
from headgate.core.columns.joined_columns import JoinedColumns
from headgate.core.columns.keys import ColumnPartitioner
from headgate.core.columns.times import EventTime
from headgate.core.columns.window_join import JoinSide, JoinWindows, WindowJoinOperator
from tests.core.chain.restore_kit import GROUPS, OperatorTasks, Send

LEFT = pa.schema([("k", pa.string()), ("l", pa.int64()), ("at", pa.int64())])
RIGHT = pa.schema([("k", pa.string()), ("at", pa.int64()), ("r", pa.int64())])
ORDER = (lambda row: row, lambda row: (row[0], row[2], row[1]))
"""Columns of each side, from ``(key, value, time)``."""
LATE = "late left", "late right"
COLUMNS = JoinedColumns(("k",), ("k",))
Row = tuple[str, int | None, int]


def sides(tags: Any = LATE) -> list[JoinSide]:
    return [
        JoinSide(("k",), EventTime("at"), schema, tag)
        for schema, tag in zip((LEFT, RIGHT), tags, strict=True)
    ]


def batch_of(side: int, rows: list[Row]) -> pa.RecordBatch:
    schema = (LEFT, RIGHT)[side]
    columns = zip(*map(ORDER[side], rows), strict=True) if rows else [[]] * 3
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class ColumnTasks(OperatorTasks):
    """Batches go to the tasks that own their rows."""

    def _send(self, send: Send) -> None:
        router = ColumnPartitioner(["k"], GROUPS)
        router.set_up(len(self.operators))
        batches = [batch for batch, _ in send.rows]
        for task, parts, _ in router.split(batches, None):
            self.operators[task].process(Bundle(parts), send.number)


ROWS = st.lists(
    st.tuples(st.sampled_from("abcdefg"), st.none() | st.integers(0, 9), st.integers(-100, 500)),
    min_size=1,
    max_size=12,
)


TUMBLING = JoinWindows(100, 100)


def tasks(windows: JoinWindows = TUMBLING, **more: Any) -> ColumnTasks:
    columns = more.pop("columns", COLUMNS)
    both = more.pop("sides", sides((None, None)))
    return ColumnTasks(lambda: WindowJoinOperator(windows, both, columns), **more)


def rows_of(tasks: ColumnTasks) -> list[tuple[Any, ...]]:
    found = [tuple(row.values())[:-2] for _, batch, _ in tasks.seen for row in batch.to_pylist()]
    tasks.seen.clear()
    return sorted(found, key=repr)
