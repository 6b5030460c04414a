"""Points of charts: merged when they grow many, and never lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.observe.analysis.windows import snapshot_of
from headgate.observe.observer import SeriesRecorder, merge_points, point_between
from headgate.observe.web.answers import SeriesPoint
from tests.observe.kit import END, MIDDLE, SOURCE, figures, three_vertices


def point(at_ms: int, rate: float = 1.0) -> SeriesPoint:
    return SeriesPoint(at_ms, rate, rate, -1.0, -1.0, -1.0, ((rate, 1.0, 0.0, 0.0),))


@given(st.integers(0, 2_000))
def test_there_are_never_more_points_than_allowed_and_none_is_lost(count: int) -> None:
    recorder = SeriesRecorder(most=100)
    for second in range(count):
        recorder.add(point(second, rate=second))
    points = recorder.points()
    assert len(points) <= 100
    assert [each.at_ms for each in points] == sorted({each.at_ms for each in points})
    if count:
        assert points[-1].at_ms == count - 1
        assert recorder.last == point(count - 1, rate=count - 1)


def test_merged_points_are_means_of_rates_and_the_largest_of_latencies() -> None:
    first = SeriesPoint(1, 10.0, 4.0, 5.0, 50.0, -1.0, ((10.0, 1.0, 0.0, 0.0),))
    second = SeriesPoint(2, 20.0, 8.0, 7.0, 30.0, 100.0, ((20.0, 0.5, 0.0, 0.5),))
    assert merge_points([first, second]) == SeriesPoint(
        2, 15.0, 6.0, 7.0, 50.0, 100.0, ((15.0, 0.75, 0.0, 0.25),)
    )


def test_a_point_holds_rates_of_sources_and_of_the_last_vertices() -> None:
    graph = three_vertices(1)
    before = snapshot_of([figures(SOURCE, made=0, busy=0)], [], 0)
    tasks = [
        figures(SOURCE, made=500, busy=500, idle=500),
        figures(END, records=400, busy=250, held_up=250, idle=500),
    ]
    last = point(0)
    last = SeriesPoint(0, 0, 0, -1, -1, -1, ((0.0,) * 4, (9.0, 0.1, 0.2, 0.7), (0.0,) * 4))
    found = point_between(graph, before, snapshot_of(tasks, [], 1000), tasks, last)
    assert (found.in_per_s, found.out_per_s) == (pytest.approx(500), pytest.approx(400))
    assert found.vertices[END] == (pytest.approx(400), 0.25, 0.25, 0.5)
    assert found.vertices[MIDDLE] == (9.0, 0.1, 0.2, 0.7)  # it has not reported in between
    assert (found.latency_p50_ms, found.watermark_lag_ms) == (-1.0, -1.0)
