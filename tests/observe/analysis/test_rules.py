"""Every rule finds its cause, at its boundary, and in the order of the rules."""

from collections.abc import Sequence

import pytest

from headgate.base.figures import TaskManagerFigures
from headgate.base.inspections import KeyCount, KeyCounts, SampledStack, StackSamples
from headgate.base.messages import TaskFigures
from headgate.observe.analysis.rules import Cause, Probes, Verdict, find, find_in_life
from headgate.observe.analysis.windows import JobWindow, snapshot_of, window_between
from tests.observe.kit import (
    END,
    MIDDLE,
    SOURCE,
    diamond,
    figures,
    process,
    three_vertices,
    window_of,
)

STATE_STACKS = StackSamples(
    100,
    2_000.0,
    1_000.0,
    (
        SampledStack(("run (headgate/a.py:1)", "get (headgate/core/state/memory.py:3)"), 51),
        SampledStack(("run (headgate/a.py:1)", "f (job.py:2)"), 49, user_at=1),
    ),
)


def held_up_source(held_up: float = 9_000) -> TaskFigures:
    return figures(SOURCE, made=1_000, busy=10_000 - held_up, held_up=held_up)


def job(
    middle: Sequence[TaskFigures],
    end: Sequence[TaskFigures],
    processes: Sequence[TaskManagerFigures] = (),
    held_up: float = 9_000,
) -> JobWindow:
    return window_of(three_vertices(4), [held_up_source(held_up), *middle, *end], processes)


def busy(vertex: int, share: float = 1.0, cpu: float = 1.0, **other: float) -> TaskFigures:
    """Busy for this share of ten seconds, and on a core for that share of it."""
    spent = 10_000 * share
    return figures(
        vertex,
        records=1_000,
        busy=spent,
        idle=10_000 - spent,
        cpu=spent * cpu,
        **other,  # type: ignore[arg-type]
    )


IDLE_END = figures(END, records=1_000, busy=100, idle=9_900)


def test_a_busy_vertex_behind_one_that_is_held_up_is_to_blame() -> None:
    found = find(job([busy(MIDDLE)], [IDLE_END]))
    assert found.cause is Cause.BUSY
    assert found.vertex is not None and found.vertex.id == MIDDLE
    assert found.held_up is not None and found.held_up.id == SOURCE


@pytest.mark.parametrize(
    ("share", "held_up", "cause"),
    [
        (0.9, 5_000, Cause.BUSY),
        (0.75, 5_000, Cause.BUSY),  # mostly busy, and nothing else is the cause
        (0.749, 5_000, Cause.LINK),  # it is not busy, but the source is held up
        (0.9, 4_999, Cause.BUSY),  # it begins to hold up the source
        (0.9, 1_000, Cause.BUSY),
        (0.9, 999, Cause.SOURCE),  # nobody is held up, and the source is busy for the rest
        (0.899, 4_999, Cause.NONE),
    ],
)
def test_the_boundaries_of_a_candidate(share: float, held_up: float, cause: Cause) -> None:
    found = find(job([busy(MIDDLE, share)], [IDLE_END], held_up=held_up))
    assert found.cause is cause


def test_the_most_downstream_candidate_is_to_blame() -> None:
    middle = figures(MIDDLE, records=1_000, busy=9_300, held_up=700, cpu=9_000)
    held_up = figures(MIDDLE, 1, records=1_000, busy=1_000, held_up=9_000, cpu=1_000)
    found = find(job([middle, held_up], [busy(END)]))
    assert found.vertex is not None and found.vertex.id == END


def test_of_two_branches_the_busier_is_to_blame() -> None:
    tasks = [held_up_source(), busy(1, 0.91), busy(2, 0.99), figures(3, idle=10_000)]
    found = find(window_of(diamond(), tasks))
    assert found.vertex is not None and found.vertex.id == 2


def skewed(
    hot: int = 2_001, others: int = 1_000, *, others_busy: float = 3_000
) -> list[TaskFigures]:
    subtasks = [
        figures(MIDDLE, n, records=others, busy=others_busy, idle=10_000 - others_busy, cpu=1_000)
        for n in range(4)
    ]
    subtasks[2] = figures(MIDDLE, 2, records=hot, busy=10_000, cpu=100)
    return subtasks


def test_a_subtask_with_far_more_records_than_the_others_is_skew() -> None:
    counts = KeyCounts(50, 2, (KeyCount("'a'", 40), KeyCount("'b'", 10)))
    found = find(job(skewed(3_000), [IDLE_END]), Probes(keys=counts))
    assert found.cause is Cause.SKEW  # before waits, though its thread hardly runs
    assert found.task is not None and found.task.subtask == 2
    assert found.keys == (("'a'", pytest.approx(0.4)), ("'b'", pytest.approx(0.1)))


def test_the_boundaries_of_skew() -> None:
    assert find(job(skewed(2_000), [IDLE_END])).cause is Cause.WAITS
    assert find(job(skewed(2_001), [IDLE_END])).cause is Cause.SKEW
    # Where all are busy, more tasks help all of them.
    assert find(job(skewed(9_000, others_busy=9_500), [IDLE_END])).cause is Cause.WAITS


@pytest.mark.parametrize("hot", [1, 2])
def test_skew_is_seen_with_few_subtasks_and_with_several_hot_ones(hot: int) -> None:
    subtasks = [
        figures(MIDDLE, n, records=5_000, busy=9_800, idle=200, cpu=9_000)
        if n < hot
        else figures(MIDDLE, n, records=100, busy=200, idle=9_800)
        for n in range(2 * hot)
    ]
    assert find(job(subtasks, [IDLE_END])).cause is Cause.SKEW


def test_a_thread_that_is_busy_and_hardly_runs_waits() -> None:
    assert find(job([busy(MIDDLE, cpu=0.29)], [IDLE_END])).cause is Cause.WAITS
    assert find(job([busy(MIDDLE, cpu=0.3)], [IDLE_END])).cause is Cause.BUSY
    assert find(job([busy(MIDDLE, cpu=0)], [IDLE_END])).cause is Cause.BUSY  # nobody knows


def test_a_thread_that_waits_for_a_core_does_not_wait_for_others() -> None:
    found = find(job([busy(MIDDLE, cpu=0.2, runnable=7_000)], [IDLE_END]))
    assert found.cause is Cause.BUSY


def test_cores_that_others_use_are_wanting_too() -> None:
    tasks = [busy(MIDDLE, cpu=0.5, runnable=5_000)]
    used = [process(cpu=6_000, cores=1)]
    assert find(job(tasks, [IDLE_END], used)).cause is Cause.CPU
    used = [process(cpu=6_000, cores=2)]  # it wants 1.1 of them
    assert find(job(tasks, [IDLE_END], used)).cause is Cause.BUSY


def test_a_thread_that_waits_for_the_interpreter_does_not_wait_for_others() -> None:
    # Other tasks of its process use all that one interpreter can give; seven cores are free.
    tasks = [busy(MIDDLE, cpu=0.2)]
    assert find(job(tasks, [IDLE_END], [process(cpu=9_900)])).cause is Cause.BUSY
    assert find(job(tasks, [IDLE_END], [process(cpu=2_500)])).cause is Cause.WAITS


def test_a_full_queue_of_asynchronous_calls_comes_before_parallelism() -> None:
    assert find(job([busy(MIDDLE, cpu=0.05, full=8_000)], [IDLE_END])).cause is (
        Cause.ASYNC_CAPACITY
    )
    assert find(job([busy(MIDDLE, cpu=0.05, full=100)], [IDLE_END])).cause is Cause.WAITS


def test_a_rate_limit_that_fills_the_queue_comes_before_its_capacity() -> None:
    throttled = busy(MIDDLE, cpu=0.05, full=8_000, throttled=7_000)
    assert find(job([throttled], [IDLE_END])).cause is Cause.RATE_LIMIT
    hardly = busy(MIDDLE, cpu=0.05, full=8_000, throttled=1_000)
    assert find(job([hardly], [IDLE_END])).cause is Cause.ASYNC_CAPACITY


def test_when_all_cores_are_used_the_costliest_vertex_is_named() -> None:
    end = figures(END, records=1_000, busy=9_500, idle=500, cpu=2_000)
    middle = figures(MIDDLE, records=1_000, busy=9_000, held_up=1_000, cpu=8_000)
    used = [process(cpu=18_000, cores=2)]
    found = find(job([middle, figures(MIDDLE, 1, held_up=10_000)], [end], used))
    assert found.cause is Cause.CPU
    assert found.vertex is not None and found.vertex.id == MIDDLE
    free = [process(cpu=17_900, cores=2)]
    found = find(job([middle, figures(MIDDLE, 1, held_up=10_000)], [end], free))
    assert found.cause is not Cause.CPU


def test_a_vertex_whose_time_goes_to_its_state_is_told_from_one_that_works() -> None:
    window = job([busy(MIDDLE)], [IDLE_END])
    assert find(window, Probes(STATE_STACKS)).cause is Cause.STATE
    half = StackSamples(100, 1.0, 1.0, (STATE_STACKS.stacks[0], STATE_STACKS.stacks[1]))
    assert Probes(half).state_share == pytest.approx(0.51)
    only_user = StackSamples(100, 1.0, 1.0, STATE_STACKS.stacks[1:])
    assert find(window, Probes(only_user)).cause is Cause.BUSY


def test_a_sink_that_commits_is_told_from_one_that_waits() -> None:
    tasks = [busy(MIDDLE, 0.1, commit=6_000)]
    assert find(job(tasks, [IDLE_END])).cause is Cause.COMMIT
    # Also if the time of commits counts as busy.
    tasks = [busy(MIDDLE, 0.95, cpu=0.05, commit=8_000)]
    assert find(job(tasks, [IDLE_END])).cause is Cause.COMMIT
    tasks = [busy(MIDDLE, 0.1, commit=1_000)]
    assert find(job(tasks, [IDLE_END])).cause is Cause.LINK


def test_tasks_that_take_turns_are_an_alternating_load() -> None:
    subtasks = [
        figures(MIDDLE, n, records=500, busy=4_800, idle=5_200, cpu=4_000) for n in range(2)
    ]
    assert find(job(subtasks, [IDLE_END])).cause is Cause.ALTERNATING


def test_vertices_that_take_turns_are_an_alternating_load() -> None:
    graph, snapshots, tasks = three_vertices(1), [], []
    for second in range(11):
        odd, even = 1000 * ((second + 1) // 2), 1000 * (second // 2)
        tasks = [
            figures(SOURCE, made=second, busy=100 * second, held_up=900 * second),
            figures(MIDDLE, records=second, busy=odd, idle=1000 * second - odd),
            figures(END, records=second, busy=even, idle=1000 * second - even),
        ]
        snapshots.append(snapshot_of(tasks, [], 1000.0 * second))
    assert find(window_between(graph, snapshots, tasks)).cause is Cause.ALTERNATING


def test_consumers_that_wait_for_what_is_on_its_way_are_limited_by_the_link() -> None:
    found = find(job([busy(MIDDLE, 0.2)], [IDLE_END]))
    assert found.cause is Cause.LINK
    assert found.vertex is not None and found.vertex.id == MIDDLE


def test_nobody_busy_and_no_core_free_is_a_matter_of_cores() -> None:
    found = find(job([busy(MIDDLE, 0.5)], [IDLE_END], [process(cpu=20_000, cores=2)]))
    assert found.cause is Cause.CPU


def test_a_busy_source_that_nobody_holds_up_is_the_limit() -> None:
    tasks = [figures(SOURCE, made=1_000, busy=9_000, idle=1_000, cpu=9_000), IDLE_END]
    found = find(window_of(three_vertices(1), tasks))
    assert found.cause is Cause.SOURCE
    assert found.vertex is not None and found.vertex.id == SOURCE
    tasks[0] = figures(SOURCE, made=1_000, busy=8_900, idle=1_100, cpu=8_900)
    assert find(window_of(three_vertices(1), tasks)) == Verdict(Cause.NONE)


def test_a_source_whose_lag_grows_is_the_limit_though_it_is_idle() -> None:
    before = [figures(SOURCE, lag=0)]
    tasks = [figures(SOURCE, made=1_000, busy=100, idle=9_900, lag=51), IDLE_END]
    assert find(window_of(three_vertices(1), tasks, before=before)).cause is Cause.SOURCE
    tasks[0] = figures(SOURCE, made=1_000, busy=100, idle=9_900, lag=50)
    assert find(window_of(three_vertices(1), tasks, before=before)).cause is Cause.NONE


def test_a_batch_job_is_limited_by_the_busiest_vertex_that_runs() -> None:
    tasks = [figures(SOURCE, made=1_000, idle=10_000), busy(MIDDLE, cpu=0.1), IDLE_END]
    found = find(window_of(three_vertices(1, batch=True), tasks))
    assert found.cause is Cause.WAITS
    assert found.vertex is not None and found.vertex.id == MIDDLE


def test_over_a_whole_life_less_makes_a_candidate_and_nothing_else_counts() -> None:
    tasks = [held_up_source(2_000), busy(MIDDLE, 0.5), IDLE_END]
    assert find_in_life(window_of(three_vertices(1), tasks)).cause is Cause.BUSY
    tasks = [held_up_source(8_000), busy(MIDDLE, 0.4), IDLE_END]
    assert find_in_life(window_of(three_vertices(1), tasks)).cause is Cause.NONE
