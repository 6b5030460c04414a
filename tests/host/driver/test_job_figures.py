"""Counts of a job go on over its attempts."""

from headgate.base.messages import TaskFigures, TaskState, UserFigure
from headgate.host.driver.checkpoint_keeper import COUNTS, JobFigures


def figures(task: str, count: int, queued: int = 0, user: int | None = None) -> TaskFigures:
    mine = () if user is None else (UserFigure("op", (), "seen", "counter", {"count": user}),)
    counts = dict.fromkeys(COUNTS, count)
    return TaskFigures(task, 0, 0, TaskState.RUNNING, **counts, queued_in=queued, user=mine)


def test_a_restart_adds_to_what_was_counted() -> None:
    job = JobFigures()
    job.measured([figures("a", 5, queued=3, user=2), figures("b", 1)])
    job.measured([figures("a", 7, queued=9, user=4)])
    assert job.latest(["b", "a", "c"]) == [figures("b", 1), figures("a", 7, 9, 4)]
    job.attempt_ended()
    (waiting,) = job.latest(["a"])
    assert (waiting.records_in, waiting.queued_in) == (7, 0)
    assert waiting.state is TaskState.DEPLOYING
    job.measured([figures("a", 2, queued=1, user=1)])
    assert job.latest(["a"]) == [figures("a", 9, 1, 5)]
    job.attempt_ended()
    job.attempt_ended()  # one that never began adds nothing
    job.measured([figures("a", 1)])
    assert job.latest(["a"]) == [figures("a", 10, 0, 5)]


def test_a_gauge_is_that_of_the_present() -> None:
    def gauge(value: int) -> TaskFigures:
        user = (UserFigure("op", (), "lag", "gauge", {"value": value}),)
        return TaskFigures("a", 0, 0, TaskState.RUNNING, user=user)

    job = JobFigures()
    job.measured([gauge(5)])
    job.attempt_ended()
    job.measured([gauge(3)])
    assert job.latest(["a"]) == [gauge(3)]
