"""Windows: rates by the tasks' own clocks, processes, lags, and what short intervals show."""

import pytest

from headgate.observe.analysis.windows import NOTHING, gained, snapshot_of, window_between
from tests.observe.kit import END, MIDDLE, SOURCE, figures, process, three_vertices, window_of


def test_rates_go_by_the_tasks_own_clocks() -> None:
    # The report of the second task is late: it covers half of the time, and half of the records.
    tasks = [
        figures(MIDDLE, 0, records=1_000, out=2_000, busy=10_000),
        figures(MIDDLE, 1, records=500, busy=1_000, idle=4_000),
    ]
    vertex = window_of(three_vertices(), tasks).vertices[MIDDLE]
    assert vertex.rate == pytest.approx(200)
    assert vertex.rate_out == pytest.approx(200)
    assert (vertex.max_busy, vertex.busy) == (1.0, pytest.approx(11 / 15))


def test_counters_that_begin_anew_give_no_negative_rates() -> None:
    before = [figures(END, records=900, busy=9_000)]
    vertex = window_of(three_vertices(), [figures(END, records=10, busy=1_000)], before=before)
    assert vertex.vertices[END].rate == pytest.approx(10)


def test_processes_of_a_host_share_its_cores() -> None:
    tasks = [figures(SOURCE, 0, busy=10_000, slot=0), figures(SOURCE, 1, busy=10_000, slot=1)]
    processes = [
        process(0, cpu=9_000, cores=2),
        process(1, cpu=10_000, cores=2),
        process(2, cpu=5_000, cores=4, host="b"),
    ]
    window = window_of(three_vertices(), tasks, processes)
    assert [(host.host, host.cores, host.cpu) for host in window.hosts] == [
        ("a", 2, pytest.approx(1.9)),
        ("b", 4, 0.0),  # none of its tasks has reported, so nobody knows for which time
    ]
    assert window.cores == 6


def test_a_process_that_was_replaced_has_no_cpu_yet() -> None:
    graph, tasks = three_vertices(), [figures(SOURCE, busy=10_000)]
    snapshots = [
        snapshot_of([], [process(cpu=50_000, pid=1)], 0),
        snapshot_of(tasks, [process(cpu=100, pid=2)], 10_000),
    ]
    assert window_between(graph, snapshots, tasks, [process(pid=2)]).process_cpu == {}


def test_the_growth_of_a_lag_is_known_if_all_tasks_know_theirs() -> None:
    before = [figures(SOURCE, 0, lag=100), figures(SOURCE, 1, lag=100, lag_ms=500)]
    now = [figures(SOURCE, 0, lag=150), figures(SOURCE, 1, lag=250, lag_ms=1_500)]
    window = window_of(three_vertices(), now, before=before)
    assert window.lags[SOURCE].records == 400
    assert window.lag_growth[SOURCE] == (pytest.approx(20), pytest.approx(100))
    unknown = window_of(three_vertices(), [now[0], figures(SOURCE, 1, lag_ms=3)], before=before)
    assert unknown.lags[SOURCE].records == -1
    assert unknown.lag_growth[SOURCE].records == 0


def test_short_intervals_show_tasks_that_take_turns() -> None:
    graph = three_vertices()
    snapshots, tasks = [], []
    for second in range(11):
        first, second_busy = 1000 * ((second + 1) // 2), 1000 * (second // 2)
        tasks = [
            figures(END, 0, busy=first, idle=1000 * second - first),
            figures(END, 1, busy=second_busy, idle=1000 * second - second_busy),
        ]
        snapshots.append(snapshot_of(tasks, [], 1000.0 * second))
    window = window_between(graph, snapshots, tasks)
    assert window.vertices[END].max_busy == pytest.approx(0.5)
    assert window.peak([window.vertices[END]]) == pytest.approx(1.0)
    assert window.peak([window.vertices[MIDDLE]]) == 0.0


def test_outputs_are_counted_for_each_record_that_was_taken() -> None:
    tasks = [figures(SOURCE, 0, made=50, busy=10_000, outputs=[400])]
    window = window_of(three_vertices(1), tasks)
    assert window.vertices[SOURCE].sent(0) == 8.0
    assert window.vertices[SOURCE].sent(1) == 0.0


def test_nothing_gained_is_nothing() -> None:
    assert gained(NOTHING, NOTHING) == NOTHING
    assert (NOTHING.rate, NOTHING.busy) == (0.0, 0.0)
