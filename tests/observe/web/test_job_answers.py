"""What is shown of a vertex: totals since the start, rates and shares over a window."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.messages import TaskState
from headgate.observe.analysis.windows import TaskCounters
from headgate.observe.web.answers import Rates
from tests.observe.kit import MIDDLE, SOURCE, details, figures, three_vertices, window_of


def test_a_job_that_has_not_reported_has_an_answer_for_each_vertex() -> None:
    vertices = details(window_of(three_vertices(), []))
    assert [vertex.name for vertex in vertices] == [
        "Source: numbers",
        "squares",
        "slow -> Sink: end",
    ]
    for vertex in vertices:
        assert (vertex.tasks, vertex.metrics.read_records) == ({"CREATED": 2}, 0)
        assert (vertex.rates, vertex.busy, vertex.idle) == (Rates(), 0, 0)
        assert (vertex.watermark, vertex.state_bytes, vertex.lag_ms) == (None, None, None)


def test_totals_are_since_the_start_and_rates_over_the_window() -> None:
    before = [figures(MIDDLE, 0, records=1_000, busy=1_000), figures(MIDDLE, 1, busy=1_000)]
    now = [
        figures(MIDDLE, 0, records=3_000, out=500, busy=6_000, held_up=5_000, cpu=2_000),
        figures(MIDDLE, 1, records=1_000, busy=1_000, idle=10_000),
    ]
    vertex = details(window_of(three_vertices(), now, before=before))[MIDDLE]
    assert (vertex.metrics.read_records, vertex.metrics.write_records) == (4_000, 500)
    assert vertex.rates.in_per_s == pytest.approx(300)
    assert (vertex.busy, vertex.backpressured, vertex.idle) == (0.25, 0.25, 0.5)
    assert vertex.soft_backpressured == pytest.approx(0.25)
    assert vertex.cpu == pytest.approx(0.1)
    assert (vertex.max_busy, vertex.max_backpressured) == (0.5, 0.5)


def test_lags_are_added_up_where_they_are_known_and_the_oldest_counts() -> None:
    tasks = [figures(SOURCE, 0, lag=7, lag_ms=20), figures(SOURCE, 1, lag_ms=30)]
    source = details(window_of(three_vertices(), tasks))[SOURCE]
    assert (source.lag_records, source.lag_bytes, source.lag_ms) == (7, None, 30)


def test_tasks_that_have_ended_are_counted() -> None:
    tasks = [figures(SOURCE, 0, state=TaskState.FINISHED), figures(SOURCE, 1)]
    vertex = details(window_of(three_vertices(), tasks))[SOURCE]
    assert vertex.tasks == {"FINISHED": 1, "RUNNING": 1}


@given(st.tuples(*[st.floats(0, 1e9)] * 4))
def test_shares_add_up_to_one_or_are_all_zero(spent: tuple[float, ...]) -> None:
    busy, soft, hard, idle = spent
    gain = TaskCounters(
        busy_ms=busy, soft_backpressured_ms=soft, hard_backpressured_ms=hard, idle_ms=idle
    )
    total = gain.busy + gain.backpressured + gain.idle
    assert total == 0 or total == pytest.approx(1)
