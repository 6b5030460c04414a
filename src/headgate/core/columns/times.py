"""Event time in a column: as milliseconds, and cut into the slices of which windows consist.

Law: all rows of a slice belong to the same windows, so that they may be folded before it is known
which windows these are. Times before 1970 are rounded down, too.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headgate.base.elements import Record
from headgate.base.errors import BatchUnfit
from headgate.core.columns.batches import column_of
from headgate.core.columns.keys import Numbers
from headgate.functions.assigners import SessionWindows

PER_MS: Final = {"us": 1_000, "ns": 1_000_000}
DAY_MS: Final = 86_400_000


def times_ms(batch: Record, name: str) -> Numbers:
    """The times of the rows in milliseconds since 1970, as a numpy array; raises BatchUnfit."""
    column = column_of(batch, name)
    kind = column.type
    if column.null_count:
        raise BatchUnfit(
            f"column {name!r}, which holds the event time, has {column.null_count} nulls in a "
            f"batch of {batch.num_rows} rows; fill them, or leave such rows out with filter()"
        )
    if pa.types.is_integer(kind):
        return column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    if pa.types.is_timestamp(kind):
        units = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
        if kind.unit == "s":
            return units * 1_000
        return units // PER_MS[kind.unit] if kind.unit in PER_MS else units
    if pa.types.is_date(kind):
        days = column.cast(pa.date32()).cast(pa.int32()).to_numpy(zero_copy_only=False)
        return days.astype(np.int64) * DAY_MS
    raise BatchUnfit(
        f"column {name!r} of type {kind} cannot be the event time; give a timestamp, a date, or "
        f"whole milliseconds since 1970"
    )


@dataclass(frozen=True, slots=True)
class EventTime:
    """Which column holds the event time of rows, and what is added to it.

    The end of a window is no part of it: its result has the millisecond before.
    """

    column: str
    shift_ms: int = 0

    def of(self, batch: Record) -> Numbers:
        """The time of each row; raises BatchUnfit."""
        return times_ms(batch, self.column) + self.shift_ms


class BatchTimes:
    """The timestamp assigner of a stream of batches: the latest time of the rows of each.

    A watermark after a batch is then after all of its rows.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def extract_timestamp(self, value: Record, record_timestamp: int) -> int:
        times = times_ms(value, self.name)
        return int(times.max()) if len(times) else record_timestamp


def slice_starts(times: Numbers, slice_ms: int, offset_ms: int) -> Numbers:
    """Where the slice of each time begins."""
    return (times - offset_ms) // slice_ms * slice_ms + offset_ms


def session_numbers(codes: Numbers, times: Numbers, gap_ms: int) -> Numbers:
    """A number for each row, equal for rows of a key that are not further apart than the gap.

    ``codes`` says which rows have equal keys. A session of the whole stream may consist of several.
    """
    order, begins = session_begins(codes, times, gap_ms)
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = begins.cumsum() - 1
    return numbers


def session_begins(codes: Numbers, times: Numbers, gap_ms: int) -> tuple[Numbers, Numbers]:
    """The places of rows by key and time, and for each of them whether a session begins there."""
    order = np.lexsort((times, codes))
    codes, times = codes[order], times[order]
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = (codes[1:] != codes[:-1]) | (times[1:] - times[:-1] > gap_ms)
    return order, begins


class PartialSessions(SessionWindows[Record]):
    """A partial ``(key, first, last, …)`` opens the window that its rows would, once merged."""

    def __init__(self, gap_ms: int) -> None:
        self.gap_ms = gap_ms

    def gap_of(self, element: Record) -> int:
        return int(element[2] - element[1] + self.gap_ms)
