"""Rows of a table: totals since the start, rates and shares over a window."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.messages import TaskState
from headgate.observe.analysis.windows import TaskCounters
from headgate.observe.progress import Shares, rows_of, shares_of
from tests.observe.kit import MIDDLE, SOURCE, figures, three_vertices, window_of


def test_a_job_that_has_not_reported_has_a_row_for_each_vertex() -> None:
    rows = rows_of(window_of(three_vertices(), []))
    assert [row.name for row in rows] == ["Source: numbers", "squares", "slow -> Sink: end"]
    assert [(row.tasks, row.running, row.records_in) for row in rows] == [(2, 0, 0)] * 3
    assert rows[0].shares == Shares() and rows[0].is_source


def test_totals_are_since_the_start_and_rates_over_the_window() -> None:
    before = [figures(MIDDLE, 0, records=1_000, busy=1_000), figures(MIDDLE, 1, busy=1_000)]
    now = [
        figures(MIDDLE, 0, records=3_000, out=500, busy=6_000, held_up=5_000, cpu=2_000),
        figures(MIDDLE, 1, records=1_000, busy=1_000, idle=10_000),
    ]
    row = rows_of(window_of(three_vertices(), now, before=before))[MIDDLE]
    assert (row.records_in, row.records_out) == (4_000, 500)
    assert row.in_per_s == pytest.approx(300)
    assert row.shares == Shares(0.25, 0.25, 0.5)
    assert row.soft_backpressured == pytest.approx(0.25)
    assert row.cpu == pytest.approx(0.2)
    assert row.busiest == (0, Shares(0.5, 0.5, 0.0))


def test_tasks_that_have_ended_are_counted() -> None:
    tasks = [figures(SOURCE, 0, state=TaskState.FINISHED), figures(SOURCE, 1)]
    row = rows_of(window_of(three_vertices(), tasks))[SOURCE]
    assert (row.running, row.ended) == (1, 1)


@given(st.tuples(*[st.floats(0, 1e9)] * 4))
def test_shares_add_up_to_one_or_are_all_zero(spent: tuple[float, ...]) -> None:
    busy, soft, hard, idle = spent
    gain = TaskCounters(
        busy_ms=busy, soft_backpressured_ms=soft, hard_backpressured_ms=hard, idle_ms=idle
    )
    shares = shares_of(gain)
    total = shares.busy + shares.backpressured + shares.idle
    assert shares == Shares() or total == pytest.approx(1)
