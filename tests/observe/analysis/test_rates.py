"""The formulas of DS2 and of Flink's autoscaler, with figures that can be checked by hand."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from headgate.base.messages import TaskFigures
from headgate.observe.analysis.rates import (
    advise,
    cap_of,
    job_rate,
    needed,
    possible,
    source_target,
    targets,
    true_rate,
    unthrottled_rate,
)
from headgate.plan.job_graph import JobGraph
from tests.observe.kit import (
    END,
    MIDDLE,
    SOURCE,
    diamond,
    figures,
    process,
    three_vertices,
    window_of,
    windows,
)


def slow_end(**source: float) -> list[TaskFigures]:
    """100 records a second; the source is open for a tenth of the time, the end always busy."""
    return [
        figures(SOURCE, made=1_000, busy=1_000, held_up=9_000, outputs=[1_000], **source),  # type: ignore[arg-type]
        figures(MIDDLE, records=1_000, busy=2_000, held_up=8_000, outputs=[2_000]),
        figures(END, records=2_000, busy=10_000),
    ]


def test_the_true_rate_is_the_rate_by_the_largest_busy_share() -> None:
    tasks = [
        figures(END, 0, records=1_000, busy=5_000, idle=5_000),
        figures(END, 1, records=1_000, busy=2_000, idle=8_000),
    ]
    window = window_of(three_vertices(), tasks)
    assert true_rate(window.vertices[END]) == pytest.approx(200 / 0.5)
    assert true_rate(window.vertices[MIDDLE]) == -1.0


def test_a_source_that_is_held_up_would_give_more() -> None:
    window = window_of(three_vertices(1), slow_end())
    source = window.vertices[SOURCE]
    assert unthrottled_rate(window, source) == pytest.approx(1_000)
    assert source_target(window, source) == pytest.approx(1_000)


@pytest.mark.parametrize(
    ("lags", "held_up", "target"),
    [
        ((0, 500), 0, 150),  # rate + growth
        ((0, 500), 5_000, 150),
        ((0, 5_000), 5_000, 200),  # its own limit: it is open for half of the time
        ((500, 0), 0, 100),  # it catches up
        ((500, 0), 9_000, 1_000),  # it would catch up faster
        ((-1, -1), 0, 100),
        ((-1, -1), 9_000, 1_000),
    ],
)
def test_the_target_of_a_source_is_its_rate_and_the_growth_of_its_lag(
    lags: tuple[int, int], held_up: float, target: float
) -> None:
    before = [figures(SOURCE, lag=lags[0])]
    now = [figures(SOURCE, made=1_000, busy=10_000 - held_up, held_up=held_up, lag=lags[1])]
    window = window_of(three_vertices(1), now, before=before)
    assert source_target(window, window.vertices[SOURCE]) == pytest.approx(target)


def test_a_source_that_falls_behind_gets_more_tasks() -> None:
    before, now = figures(SOURCE, lag=0), figures(SOURCE, made=1_000, busy=10_000, lag=500)
    source, *_ = advise(window_of(three_vertices(1), [now], before=[before]))
    assert source.suggested == math.ceil(150 / (100 * 0.8))
    unknown, *_ = advise(window_of(three_vertices(1), [figures(SOURCE, made=1_000, busy=10_000)]))
    assert unknown.suggested == 1


def test_a_lag_in_time_grows_by_what_the_source_does_not_read() -> None:
    before = [figures(SOURCE, lag_ms=0)]
    now = [figures(SOURCE, made=1_000, busy=1_000, held_up=9_000, lag_ms=5_000)]
    window = window_of(three_vertices(1), now, before=before)
    # It has read what came in 5 of 10 seconds, so that twice as much comes in.
    assert source_target(window, window.vertices[SOURCE]) == pytest.approx(200)


def test_targets_follow_what_is_sent_on_each_edge() -> None:
    window = window_of(three_vertices(1), slow_end())
    assert targets(window) == [pytest.approx(1_000), pytest.approx(1_000), pytest.approx(2_000)]
    tasks = [
        figures(0, made=1_000, busy=5_000, held_up=5_000, outputs=[1_000, 300]),
        figures(1, records=1_000, busy=1_000, idle=9_000, outputs=[500]),
        figures(2, records=300, busy=1_000, idle=9_000, outputs=[300]),
        figures(3, records=800, busy=1_000, idle=9_000),
    ]
    assert targets(window_of(diamond(), tasks)) == [
        pytest.approx(200),
        pytest.approx(200),
        pytest.approx(60),
        pytest.approx(160),
    ]


@pytest.mark.parametrize(
    ("parallelism", "target", "true", "tasks"),
    [(2, 800, 1_000, 2), (2, 801, 1_000, 3), (1, 1_000, 200, 7), (4, 1, 1_000, 1)],
)
def test_the_parallelism_is_rounded_up(
    parallelism: int, target: float, true: float, tasks: int
) -> None:
    assert needed(parallelism, target, true) == tasks


def test_no_target_is_above_what_a_source_declares() -> None:
    """It makes good in bursts what it was held up for, so that it seems to be much faster."""
    tasks = slow_end()
    tasks[0] = structs.replace(tasks[0], declared_rate=500.0)
    window = window_of(three_vertices(1), tasks)
    assert targets(window) == pytest.approx([500, 500, 1_000])
    assert possible(window, {END: math.inf}, math.inf).rate == pytest.approx(500)
    slower = structs.replace(tasks[0], declared_rate=1.0)  # it gives more than it says
    window = window_of(three_vertices(1), [slower, *tasks[1:]])
    assert targets(window)[SOURCE] == pytest.approx(100)


def test_what_a_source_was_seen_to_give_counts_rather_than_a_moment_of_the_window() -> None:
    window = dataclasses.replace(window_of(three_vertices(1), slow_end()), open_rates={SOURCE: 300})
    assert targets(window)[SOURCE] == pytest.approx(300)
    window = dataclasses.replace(window, open_rates={SOURCE: 3})
    assert targets(window)[SOURCE] == pytest.approx(100), "it gives that much now"


def test_the_job_does_what_its_limit_takes_and_not_what_fills_the_buffers() -> None:
    """Soon after the start buffers shrink: what waits is worked off, and sources give little."""
    tasks = [
        figures(SOURCE, made=100, busy=100, held_up=9_900, outputs=[100]),
        figures(MIDDLE, records=1_000, busy=2_000, held_up=8_000, outputs=[2_000]),
        figures(END, records=4_000, busy=10_000),
    ]
    window = window_of(three_vertices(1), tasks)
    assert job_rate(window, window.vertices[END]) == pytest.approx(200)
    assert job_rate(window, window.vertices[SOURCE]) == job_rate(window, None) == pytest.approx(10)


def test_bursts_of_windows_say_nothing_about_the_rate_of_the_job() -> None:
    before = [figures(MIDDLE, records=10_000, outputs=[10], busy=100_000)]
    tasks = [
        figures(SOURCE, made=1_000, busy=1_000, held_up=9_000, outputs=[1_000]),
        figures(MIDDLE, records=11_000, busy=102_000, held_up=8_000, outputs=[2_000]),
        figures(END, records=4_000, busy=10_000),
    ]
    window = window_of(three_vertices(1), tasks, before=before)
    assert job_rate(window, window.vertices[END]) == pytest.approx(100)


def test_every_vertex_gets_its_suggestion() -> None:
    source, middle, end = advise(window_of(three_vertices(1), slow_end()))
    # 1,000 come; one task of the middle takes 500, one of the end 200 of its 2,000.
    assert (source.suggested, middle.suggested, end.suggested) == (1, 3, 13)
    assert (end.rate, end.true_rate, end.target_rate) == (
        pytest.approx(200),
        pytest.approx(200),
        pytest.approx(2_000),
    )
    assert end.limited_by == ""


def test_suggestions_are_capped_by_key_groups_and_source_splits() -> None:
    graph = three_vertices(1)
    small = JobGraph(
        graph.name,
        tuple(
            type(vertex)(
                **{name: getattr(vertex, name) for name in vertex.__dataclass_fields__}
                | {"max_parallelism": 2}
            )
            for vertex in graph.vertices
        ),
        graph.edges,
    )
    before = [figures(SOURCE, lag=0)]
    tasks = slow_end(lag=10**9, splits=1)
    source, middle, end = advise(window_of(small, tasks, before=before))
    assert (source.suggested, source.limited_by) == (1, "source splits")
    assert (middle.suggested, middle.limited_by) == (2, "key groups")
    assert (end.suggested, end.limited_by) == (2, "max parallelism")
    waiting = [structs.replace(task, unassigned_splits=5) for task in tasks[:1]]
    source, _, _ = advise(window_of(small, [*waiting, *tasks[1:]], before=before))
    assert source.limited_by == "max parallelism", "the driver has more of them"


def test_more_tasks_than_cores_can_feed_are_not_suggested() -> None:
    tasks = slow_end()
    window = window_of(three_vertices(1), tasks, [process(cpu=10_000, cores=2)])
    *_, end = advise(window)
    assert (end.suggested, end.limited_by) == (3, "cores")  # at twice the rate


def test_without_its_bottleneck_a_job_is_limited_by_the_next() -> None:
    window = window_of(three_vertices(1), slow_end())
    found = possible(window, {END: math.inf}, math.inf)
    assert (found.rate, found.limit) == (pytest.approx(500), MIDDLE)
    found = possible(window, {END: math.inf, MIDDLE: math.inf}, math.inf)
    assert (found.rate, found.limit) == (pytest.approx(1_000), SOURCE)
    found = possible(window, {END: math.inf}, 3.0)
    assert (found.rate, found.by_cores) == (pytest.approx(300), True)
    assert possible(window, {}, math.inf).rate == pytest.approx(100)


@given(st.data())
def test_suggestions_stay_between_what_is_there_and_the_cap(data: st.DataObject) -> None:
    window = data.draw(windows())
    for advice, vertex in zip(advise(window), window.vertices, strict=True):
        cap, _ = cap_of(window, vertex)
        assert vertex.vertex.parallelism <= advice.suggested
        assert advice.suggested <= max(vertex.vertex.parallelism, cap)
        assert math.isfinite(advice.target_rate) and advice.target_rate >= 0
    assert math.isfinite(possible(window, {}, 5.0).rate)
