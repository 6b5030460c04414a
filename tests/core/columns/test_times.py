"""Event time from columns, and slices that lie within windows."""

from datetime import date, datetime, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import BatchUnfit
from headgate.core.columns.times import (
    BatchTimes,
    PartialSessions,
    session_numbers,
    slice_starts,
    times_ms,
)
from headgate.functions.assigners import slides
from headgate.functions.window import TimeWindow

EARLY = datetime(1969, 12, 31, 23, 59, 59, 999_500, timezone.utc)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([-1, 5], pa.int64()), [-1, 5]),
        (pa.array([3], pa.int32()), [3]),
        (pa.array([EARLY], pa.timestamp("us", "UTC")), [-1]),
        (pa.array([-1_500_000], pa.timestamp("ns")), [-2]),
        (pa.array([7], pa.timestamp("ms")), [7]),
        (pa.array([-2], pa.timestamp("s")), [-2000]),
        (pa.array([date(1970, 1, 2)], pa.date32()), [86_400_000]),
        (pa.array([date(1970, 1, 2)], pa.date64()), [86_400_000]),
    ],
)
def test_times_are_milliseconds_rounded_down(column: pa.Array, expected: list[int]) -> None:
    assert times_ms(pa.record_batch({"at": column}), "at").tolist() == expected


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(BatchUnfit, match="'at' of type string cannot be the event time"):
        times_ms(pa.record_batch({"at": ["noon"]}), "at")
    with pytest.raises(BatchUnfit, match="holds the event time, has 1 nulls in a batch of 2 rows"):
        times_ms(pa.record_batch({"at": [1, None]}), "at")


def test_a_batch_has_the_time_of_its_latest_row() -> None:
    times = BatchTimes("at")
    assert times.extract_timestamp(pa.record_batch({"at": [3, 9, 1]}), 0) == 9
    assert times.extract_timestamp(pa.record_batch({"at": pa.array([], pa.int64())}), 4) == 4


@given(
    times=st.lists(st.integers(-100, 100), min_size=1),
    size=st.integers(1, 12),
    slide=st.integers(1, 12),
    offset=st.integers(0, 11),
)
def test_all_times_of_a_slice_have_the_same_windows(
    times: list[int], size: int, slide: int, offset: int
) -> None:
    starts = slice_starts(np.array(times), int(np.gcd(size, slide)), offset % slide)
    for time_ms, start in zip(times, starts.tolist(), strict=True):
        assert start <= time_ms
        assert slides(time_ms, size, slide, offset % slide) == slides(
            start, size, slide, offset % slide
        )


@given(
    rows=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60)), max_size=30),
    gap=st.integers(1, 10),
)
def test_sessions_of_a_batch_are_the_stretches_without_a_gap(
    rows: list[tuple[int, int]], gap: int
) -> None:
    codes, times = (np.array([row[at] for row in rows], dtype=np.int64) for at in (0, 1))
    numbers = session_numbers(codes, times, gap).tolist()
    found: dict[int, list[tuple[int, int]]] = {}
    for number, row in zip(numbers, rows, strict=True):
        found.setdefault(number, []).append(row)
    expected: list[list[tuple[int, int]]] = []
    last: Any = None
    for row in sorted(rows):
        if last is None or row[0] != last[0] or row[1] - last[1] > gap:
            expected.append([])
        expected[-1].append(row)
        last = row
    assert sorted(map(sorted, found.values())) == sorted(expected)


def test_a_partial_opens_the_window_that_its_rows_would() -> None:
    sessions = PartialSessions(10)
    window = sessions.assign_windows(("key", 5, 25, 3), 5, None)  # type: ignore[arg-type]
    assert list(window) == [TimeWindow(5, 35)]
    assert sessions.is_event_time()
