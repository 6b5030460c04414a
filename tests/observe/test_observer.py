"""The observer: windows that never cross a restart, bounded memory, and who is asked what."""

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from headgate.api.job import JobStatus
from headgate.base.inspections import (
    CountKeys,
    KeyCount,
    KeyCounts,
    SampledStack,
    SampleStacks,
    StackSamples,
)
from headgate.base.messages import TaskFigures, TaskState
from headgate.observe.observer import JobObserver
from tests.observe.kit import END, MIDDLE, SOURCE, ScriptedJob, figures, process, three_vertices

START_MS = 1_700_000_000_000.0


def slow_end(seconds: float) -> list[TaskFigures]:
    """A job with two tasks for each vertex, after so many seconds."""
    ran = 1000 * seconds
    return [
        task
        for subtask in range(2)
        for task in (
            figures(SOURCE, subtask, made=int(ran), busy=ran / 10, held_up=ran * 0.9),
            figures(MIDDLE, subtask, records=int(ran), busy=ran / 5, held_up=ran * 0.8),
            figures(END, subtask, records=int(ran), busy=ran, cpu=ran / 50),
        )
    ]


def watched(
    seconds: int, job: ScriptedJob, observer: JobObserver | None = None, begin: int = 0
) -> JobObserver:
    observer = observer or JobObserver(job)
    for second in range(begin, begin + seconds + 1):
        job.tasks = slow_end(second)
        observer.look(START_MS + 1000 * second)
    return observer


def test_less_than_ten_seconds_are_too_few() -> None:
    job = ScriptedJob(three_vertices())
    assert "for the first time" in JobObserver(job).quick_diagnosis().summary
    observer = watched(9, job)
    assert observer.quick_diagnosis().summary == (
        "Cannot say yet: it was watched for 9 s only, and an answer needs 10 s; ask again in 1 s."
    )
    observer = watched(1, job, observer, 9)
    assert observer.quick_diagnosis().cause == "waits"


def test_a_restart_begins_anew() -> None:
    job = ScriptedJob(three_vertices())
    observer = watched(20, job)
    job.restarted = 1
    assert "restarted just now" in observer.diagnose().summary  # nobody has looked since
    observer = watched(3, job, observer, 21)
    found = observer.quick_diagnosis()
    assert found.cause == "unknown"
    assert "it has restarted, and since then was watched for 3 s only" in found.summary
    assert observer.window().seconds == pytest.approx(3)
    assert watched(10, job, observer, 25).quick_diagnosis().cause == "waits"


@pytest.mark.parametrize("sign", ["counters", "processes"])
def test_counters_that_go_down_and_other_processes_are_a_restart(sign: str) -> None:
    job = ScriptedJob(three_vertices())
    job.processes = [process(pid=7)]
    observer = watched(20, job)
    if sign == "processes":
        job.processes = [process(pid=8)]
        observer = watched(2, job, observer, 21)
    else:
        job.tasks = slow_end(2)
        observer.look(START_MS + 21_000)
    assert observer.quick_diagnosis().cause == "unknown"


def test_a_task_that_is_missing_or_starts_is_waited_for() -> None:
    job = ScriptedJob(three_vertices())
    observer = watched(20, job)
    job.tasks = slow_end(21)[:-1]
    observer.look(START_MS + 21_000)
    assert observer.quick_diagnosis().summary == (
        "Cannot say yet: 1 of 6 tasks have not reported yet, or are still starting."
    )
    job.tasks = [*slow_end(22)[:-1], figures(END, 1, state=TaskState.DEPLOYING)]
    observer.look(START_MS + 22_000)
    assert "1 of 6 tasks" in observer.quick_diagnosis().summary


def test_a_task_that_goes_silent_is_named() -> None:
    job = ScriptedJob(three_vertices())
    observer = watched(20, job)
    for second in range(21, 33):
        job.tasks = [*slow_end(second)[:-1], slow_end(20)[-1]]
        observer.look(START_MS + 1000 * second)
    found = observer.quick_diagnosis()
    assert found.cause == "unknown"
    assert "subtask 1 of 'slow -> Sink: end' has sent no figures" in found.summary


def test_a_job_that_does_not_run_yet_says_so() -> None:
    job = ScriptedJob(three_vertices())
    job.state = JobStatus.RESTARTING
    observer = watched(20, job)
    assert observer.quick_diagnosis().summary == "Cannot say yet: the job is restarting."
    job.waiting = "waiting for 4 slots"
    observer.look(START_MS + 21_000)
    summary = "Cannot say yet: the job is restarting, waiting for 4 slots."
    assert observer.quick_diagnosis().summary == summary


def test_an_ended_job_is_judged_by_its_whole_life_and_looked_at_no_more() -> None:
    job = ScriptedJob(three_vertices())
    observer = watched(5, job)
    job.ended.set()
    observer.look(START_MS + 6_000)
    found = observer.diagnose()
    assert found.summary.startswith("The job has ended (finished) after 5.0 s")
    assert "'slow -> Sink: end' limits the job" in found.summary
    assert job.asked == []
    points = len(observer.series().points)
    observer.look(START_MS + 60_000)
    assert len(observer.series().points) == points
    assert observer.window().vertices[SOURCE].rate == pytest.approx(2_000)


def test_the_task_that_limits_the_job_is_sampled() -> None:
    job = ScriptedJob(three_vertices())
    stack = SampledStack(("run (headgate/t.py:1)", "look_up (job.py:12)"), 90, user_at=1)
    job.answers[SampleStacks] = StackSamples(100, 2_000.0, 20.0, (stack,))
    observer = watched(12, job)
    quick = observer.quick_diagnosis()
    assert (quick.complete, quick.line, job.asked) == (False, "", [])
    assert observer.diagnose(ask=False) == quick
    found = observer.diagnose(seconds=3.0)
    assert (found.complete, found.line) == (True, "look_up (job.py:12)")
    assert job.asked == [(f"{END}.0", SampleStacks(3.0, 100.0))]


def test_keys_are_counted_where_a_subtask_is_hot() -> None:
    job = ScriptedJob(three_vertices())
    job.answers[CountKeys] = KeyCounts(10, 2, (KeyCount("'eve'", 9),))
    observer = JobObserver(job)
    for second in range(12):
        ran = 1000 * second
        job.tasks = [
            figures(SOURCE, 0, made=ran, busy=100 * second, held_up=900 * second),
            figures(SOURCE, 1, made=ran, busy=100 * second, held_up=900 * second),
            figures(MIDDLE, 0, records=100 * second, busy=50 * second, idle=950 * second),
            figures(MIDDLE, 1, records=1900 * second, busy=ran, cpu=ran),
            figures(END, 0, idle=ran),
            figures(END, 1, idle=ran),
        ]
        observer.look(START_MS + ran)
    found = observer.diagnose()
    assert (found.cause, found.vertex, found.subtask) == ("skew", MIDDLE, 1)
    assert found.keys == (("'eve'", pytest.approx(0.855)),)
    assert found.complete  # keys were counted, though nobody has sampled stacks


def test_without_an_answer_the_quick_diagnosis_stays() -> None:
    job = ScriptedJob(three_vertices())
    observer = watched(12, job)
    found = observer.diagnose()
    assert (found.cause, found.complete) == ("waits", False)


def test_snapshots_and_points_are_bounded() -> None:
    job = ScriptedJob(three_vertices())
    observer = JobObserver(job)
    for quarter in range(3_000):
        job.tasks = slow_end(quarter / 4)
        observer.look(START_MS + 250 * quarter)
    assert len(observer._snapshots) <= 20
    series = observer.series()
    assert series.vertices == ("Source: numbers", "squares", "slow -> Sink: end")
    assert 300 <= len(series.points) <= 600
    last = series.points[-1]
    assert last.in_per_s == pytest.approx(2_000, rel=0.01)
    assert last.vertices[END][1] == pytest.approx(1.0)
    assert observer.window().seconds == pytest.approx(10, abs=0.3)


def test_the_observer_takes_its_time_from_the_clock() -> None:
    job = ScriptedJob(three_vertices())
    observer = JobObserver(job)
    observer.look()
    job.tasks = slow_end(1)
    observer.look()
    (point,) = observer.series().points
    assert abs(point.at_ms - time.time() * 1000) < 60_000


def test_a_clock_that_is_set_back_begins_anew() -> None:
    job = ScriptedJob(three_vertices())
    observer = watched(20, job)
    hour_ms = 3_600_000
    for second in range(21, 33):
        job.tasks = slow_end(second)
        observer.look(START_MS - hour_ms + 1000 * second)
        found = observer.quick_diagnosis()
        assert found.cause == ("unknown" if second < 31 else "waits")
    assert observer.window().seconds == pytest.approx(10)


def test_a_job_with_very_many_tasks_is_judged_less_often_but_a_restart_is_seen_at_once() -> None:
    graph = three_vertices(200)
    job = ScriptedJob(graph)
    observer = JobObserver(job)
    answers = []
    for second in range(20):
        job.restarted = second // 18
        job.tasks = [
            figures(vertex.id, subtask, idle=1000 * second)
            for vertex in graph.vertices
            for subtask in range(200)
        ]
        observer.look(START_MS + 1000 * second)
        answers.append(observer.quick_diagnosis())
    changed = [at for at in range(1, 20) if answers[at] is not answers[at - 1]]
    assert changed == [3, 6, 9, 12, 15, 18]
    assert (answers[17].cause, answers[18].cause) == ("none", "unknown")


def test_many_threads_may_look_and_ask() -> None:
    job = ScriptedJob(three_vertices())
    observer = watched(12, job)

    def use(_: int) -> str:
        observer.look()
        observer.window(5.0)
        observer.series()
        return observer.diagnose(seconds=0.1).cause

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(use, range(200))) <= {"waits", "unknown"}


def test_the_target_of_a_source_that_is_open_for_moments_does_not_wander() -> None:
    """By a window of ten seconds alone it would be another one each second."""
    rolls, job = random.Random(7), ScriptedJob(three_vertices(1))
    observer, made, open_ms, found = JobObserver(job), 0, 0.0, []
    for second in range(91):
        ran = 1000.0 * second
        job.tasks = [
            figures(SOURCE, made=made, busy=open_ms, held_up=ran - open_ms, outputs=[made]),
            figures(MIDDLE, records=650 * second, busy=ran / 5, held_up=ran * 0.8, outputs=[made]),
            figures(END, records=650 * second, busy=ran, cpu=ran / 50),
        ]
        observer.look(START_MS + ran)
        if second >= 30:
            found.append(observer.quick_diagnosis().advice[SOURCE].target_rate)
        made += rolls.choice([0, 0, 100, 200, 1_000, 2_000])
        open_ms += rolls.choice([1, 5, 20, 80])
    assert max(found) < 2 * min(found)


def test_restarts_are_in_the_course_of_the_job() -> None:
    job = ScriptedJob(three_vertices())
    observer = watched(3, job)
    assert observer.series().restarts == ()
    job.restarted = 1
    watched(2, job, observer, 4)
    job.restarted = 2
    watched(0, job, observer, 7)
    assert observer.series().restarts == (START_MS + 4_000, START_MS + 7_000)
