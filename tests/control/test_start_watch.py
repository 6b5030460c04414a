"""A start has a deadline, and people learn who is waited for."""

from headgate.base.messages import TaskState
from headgate.control.attempt import FIRST_REMINDER_MS, NEXT_REMINDER_MS, StartWatch
from headgate.control.effects import Replan, RunEnded, Warn
from headgate.control.job import JobRun
from headgate.control.life_cycle import JobState
from headgate.control.recovery import FixedDelay, Recovery
from tests.control.kit import BOOM, TIMES, address, plan

START_MS = TIMES.start_ms


def test_it_reminds_now_and_then_until_it_is_over() -> None:
    watch = StartWatch(400_000)
    assert watch.next_deadline_ms is None
    watch.begun(1_000)
    assert watch.next_deadline_ms == 1_000 + FIRST_REMINDER_MS
    assert not watch.reminds(1_000) and watch.reminds(70_000) and not watch.reminds(71_000)
    assert watch.next_deadline_ms == 70_000 + NEXT_REMINDER_MS
    assert not watch.is_over(400_999) and watch.is_over(401_000)
    watch.ended()
    assert watch.next_deadline_ms is None and not watch.is_over(1e9) and not watch.reminds(1e9)


def test_task_managers_that_nobody_starts_are_not_awaited_for_ever() -> None:
    run = JobRun(plan(), TIMES, Recovery())
    run.begun(0)
    (warning,) = run.tick(FIRST_REMINDER_MS)
    assert isinstance(warning, Warn)
    assert "waits for the task managers of slots 0, 1, which Spark has not started" in warning.text
    effects = run.tick(START_MS)
    (end,) = [effect for effect in effects if isinstance(effect, RunEnded)]
    assert end.outcome.failure is not None
    assert "raise task.start.timeout" in end.outcome.failure.message
    run.check()


def test_a_job_that_reads_a_query_waits_for_it() -> None:
    run = JobRun(plan(), TIMES, Recovery(in_place=False))
    run.begun(0)
    assert run.next_deadline_ms is None


def test_tasks_that_do_not_open_are_named_and_cancelled() -> None:
    run = JobRun(plan(), TIMES, Recovery())
    run.begun(0)
    for slot in (0, 1):
        run.manager_registered(slot, address(slot), 10)
    for task in ("0.0", "0.1", "1.0"):
        run.task_changed("job/0/0", task, TaskState.RUNNING, None, 20)
    effects = run.tick(10 + FIRST_REMINDER_MS)
    assert [effect.text for effect in effects if isinstance(effect, Warn)] == [
        "the job has not started yet; it waits for the tasks 1.1 (slot 1) to restore their state "
        "and open"
    ]
    run.tick(10 + START_MS)
    assert run.state is JobState.FAILING
    run.check()


def test_a_job_that_has_started_has_no_such_deadline() -> None:
    run = JobRun(plan(), TIMES)
    for slot in (0, 1):
        run.manager_registered(slot, address(slot), 10)
    assert run.next_deadline_ms is not None
    for task in run.states:
        run.task_changed("job/0/0", task, TaskState.RUNNING, None, 20)
    assert run.state is JobState.RUNNING and run.next_deadline_ms is None


def test_many_tasks_that_do_not_open_are_counted() -> None:
    run = JobRun(plan(parallelism=20), TIMES)
    for slot in range(20):
        run.manager_registered(slot, address(slot), 0)
    (warning,) = [effect for effect in run.tick(FIRST_REMINDER_MS) if isinstance(effect, Warn)]
    assert "the tasks 0.0 (slot 0), 0.1 (slot 1)" in warning.text
    assert "and 35 others to restore their state" in warning.text


def test_a_storage_that_does_not_answer_a_restart_is_not_awaited_for_ever() -> None:
    run = JobRun(plan(), TIMES, Recovery(strategy=FixedDelay(9, 50)))
    for slot in (0, 1):
        run.manager_registered(slot, address(slot), 0)
    for task in run.states:
        run.task_changed("job/0/0", task, TaskState.RUNNING, None, 0)
    run.task_changed("job/0/0", "0.0", TaskState.FAILED, BOOM, 100)
    for task in ("0.1", "1.0", "1.1"):
        run.task_changed("job/0/0", task, TaskState.CANCELLED, None, 110)
    assert run.state is JobState.RESTARTING
    assert any(isinstance(effect, Replan) for effect in run.tick(150))
    (warning,) = run.tick(150 + FIRST_REMINDER_MS)
    assert isinstance(warning, Warn)
    assert warning.text.endswith(
        "waits for the storage of its checkpoints, to plan the next attempt"
    )
    effects = run.tick(150 + START_MS)
    (end,) = [effect for effect in effects if isinstance(effect, RunEnded)]
    assert end.outcome.restart_in_ms is not None, "a new run asks anew"
    assert run.planned(plan(), 150 + START_MS) == [], "too late"
    run.check()
