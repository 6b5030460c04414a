"""Rates and shares over a window, and who holds up whom."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.messages import TaskState
from headgate.observe.progress import Gain, JobProgress, Shares, VertexRow, bottlenecks, shares_of
from tests.observe.kit import END, MIDDLE, SOURCE, figures, three_vertices


def test_a_job_that_has_not_reported_has_a_row_for_each_vertex() -> None:
    rows = JobProgress(three_vertices()).rows()
    assert [row.name for row in rows] == ["Source: numbers", "squares", "slow -> Sink: end"]
    assert [(row.tasks, row.running, row.records_in) for row in rows] == [(2, 0, 0)] * 3
    assert rows[0].shares == Shares() and rows[0].is_source


def test_the_first_report_counts_since_the_start() -> None:
    progress = JobProgress(three_vertices())
    progress.reported([figures(SOURCE, made=500, busy=250, idle=750)], 0)
    row = progress.rows()[SOURCE]
    assert (row.records_in, row.in_per_s) == (500, pytest.approx(500))
    assert row.shares == Shares(0.25, 0.0, 0.75)


def test_rates_are_over_the_window_and_by_the_tasks_own_clock() -> None:
    progress = JobProgress(three_vertices(), window_ms=5_000)
    for second in range(11):
        records = 100 * second if second < 6 else 500 + 300 * (second - 5)
        ran = 1000 * second
        # The report of the other task is late each time; that changes no rate.
        both = [
            figures(MIDDLE, 0, records=records, out=records * 2, busy=ran),
            figures(MIDDLE, 1, records=records // 2, busy=ran / 2),
        ]
        progress.reported(both, 1000.0 * second)
    row = progress.rows()[MIDDLE]
    assert row.in_per_s == pytest.approx(600)
    assert row.out_per_s == pytest.approx(600)
    assert progress.whole()[MIDDLE].in_per_s == pytest.approx(400)


def test_counters_that_begin_anew_give_no_negative_rates() -> None:
    progress = JobProgress(three_vertices())
    progress.reported([figures(END, records=900, busy=9000)], 0)
    progress.reported([figures(END, records=10, busy=1000)], 1000)
    assert progress.rows()[END].in_per_s == pytest.approx(10)


def test_tasks_that_have_ended_are_counted() -> None:
    progress = JobProgress(three_vertices())
    tasks = [figures(SOURCE, 0, state=TaskState.FINISHED), figures(SOURCE, 1)]
    progress.reported(tasks, 0)
    row = progress.rows()[SOURCE]
    assert (row.running, row.ended) == (1, 1)


def rows_of(*tasks: tuple[int, int, float, float]) -> list[VertexRow]:
    progress = JobProgress(three_vertices())
    reports = [
        figures(vertex, subtask, busy=busy, held_up=held_up, idle=1000 - busy - held_up)
        for vertex, subtask, busy, held_up in tasks
    ]
    progress.reported(reports, 0)
    return progress.whole()


def test_the_bottleneck_is_busy_while_the_one_before_it_waits() -> None:
    rows = rows_of((SOURCE, 0, 20, 900), (MIDDLE, 0, 60, 900), (END, 0, 990, 0))
    (found,) = bottlenecks(three_vertices(), rows)
    assert (found.row.vertex, found.held_up.vertex) == (END, MIDDLE)
    assert found.describe() == (
        "bottleneck 'slow -> Sink: end': busy 99%, while 'squares' before it is back-pressured "
        "90% of the time"
    )


def test_who_waits_for_buffers_itself_is_not_blamed() -> None:
    rows = rows_of((SOURCE, 0, 100, 900), (MIDDLE, 0, 450, 550), (END, 0, 300, 0))
    assert bottlenecks(three_vertices(), rows) == []


def test_who_is_busy_and_holds_up_nobody_is_not_blamed() -> None:
    rows = rows_of((SOURCE, 0, 900, 0), (MIDDLE, 0, 900, 0), (END, 0, 900, 0))
    assert bottlenecks(three_vertices(), rows) == []


def test_one_hot_task_is_found_though_its_vertex_is_idle_on_average() -> None:
    rows = rows_of((SOURCE, 0, 50, 900), (MIDDLE, 0, 20, 0), (MIDDLE, 1, 960, 0))
    (found,) = bottlenecks(three_vertices(), rows)
    assert "task 2 of 2 busy 96%" in found.describe()


@given(
    st.lists(
        st.tuples(*[st.floats(0, 1e9)] * 3).map(lambda ms: Gain(0, 0, 0, *ms)),
        max_size=4,
    )
)
def test_shares_add_up_to_one_or_are_all_zero(gains: list[Gain]) -> None:
    shares = shares_of(gains)
    total = shares.busy + shares.backpressured + shares.idle
    assert shares == Shares() or total == pytest.approx(1)
