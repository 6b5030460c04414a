"""Counts of a job go on over its attempts."""

from msgspec import structs

from headgate.base.figures import (
    UNKNOWN,
    AsyncFigures,
    GateFigures,
    LatencyFigures,
    OperatorFigures,
    OutputFigures,
    counts_of,
)
from headgate.base.messages import TaskFigures, TaskState, UserFigure
from headgate.host.driver.checkpoint_keeper import JobFigures

NUMBERS = [
    field.name
    for field in structs.fields(TaskFigures)
    if field.name in counts_of(TaskFigures) and isinstance(field.default, int | float)
]


def figures(task: str, count: int, queued: int = 0, user: int | None = None) -> TaskFigures:
    mine = () if user is None else (UserFigure("op", (), "seen", "counter", {"count": user}),)
    counts = dict.fromkeys(NUMBERS, count)
    return TaskFigures(task, 0, 0, TaskState.RUNNING, **counts, queued_in=queued, user=mine)


def test_a_restart_adds_to_what_was_counted() -> None:
    job = JobFigures()
    job.measured([figures("a", 5, queued=3, user=2), figures("b", 1)])
    job.measured([figures("a", 7, queued=9, user=4)])
    assert job.latest(job.reported(["b", "a", "c"])) == [figures("b", 1), figures("a", 7, 9, 4)]
    job.attempt_ended()
    (waiting,) = job.latest(job.reported(["a"]))
    assert (waiting.records_in, waiting.queued_in) == (7, 0)
    assert waiting.state is TaskState.DEPLOYING
    job.measured([figures("a", 2, queued=1, user=1)])
    assert job.latest(job.reported(["a"])) == [figures("a", 9, 1, 5)]
    job.attempt_ended()
    job.attempt_ended()  # one that never began adds nothing
    job.measured([figures("a", 1)])
    assert job.latest(job.reported(["a"])) == [figures("a", 10, 0, 5)]


def test_parts_of_a_task_are_added_place_by_place() -> None:
    def report(count: int, queued: int) -> TaskFigures:
        return TaskFigures(
            "a",
            0,
            0,
            TaskState.RUNNING,
            outputs=(OutputFigures(count, count, count, queued, queued, 8, queued),),
            operators=(OperatorFigures("map", count, count, count, count, count, 9 - queued),),
            async_calls=(AsyncFigures("ask", 10, queued, count),),
            latency=LatencyFigures((count, 0), count),
            gates=(GateFigures(2, queued),),
            state_bytes=queued,
        )

    job = JobFigures()
    job.measured([report(5, 3)])
    job.attempt_ended()
    (waiting,) = job.latest(job.reported(["a"]))
    assert waiting.outputs == (OutputFigures(5, 5, 5),)
    assert waiting.async_calls == (AsyncFigures("ask", 10, 0, 5),)
    assert (waiting.gates, waiting.state_bytes) == ((), UNKNOWN)
    job.measured([TaskFigures("a", 0, 0, TaskState.DEPLOYING)])
    (begun,) = job.latest(job.reported(["a"]))
    assert (begun.operators, begun.latency) == (waiting.operators, waiting.latency)
    job.measured([report(2, 1)])
    assert job.latest(job.reported(["a"])) == [report(7, 1)]
    job.attempt_ended()
    job.measured([report(1, 5)])
    (last,) = job.latest(job.reported(["a"]))
    assert last.operators == (OperatorFigures("map", 8, 8, 8, 8, 8, 8),), "the latest is the most"


def test_a_gauge_is_that_of_the_present() -> None:
    def gauge(value: int) -> TaskFigures:
        user = (UserFigure("op", (), "lag", "gauge", {"value": value}),)
        return TaskFigures("a", 0, 0, TaskState.RUNNING, user=user)

    job = JobFigures()
    job.measured([gauge(5)])
    job.attempt_ended()
    job.measured([gauge(3)])
    assert job.latest(job.reported(["a"])) == [gauge(3)]


def test_a_report_is_added_once_however_many_look_at_it() -> None:
    job = JobFigures()
    job.measured([figures("a", 7)])
    job.attempt_ended()
    for now in (None, figures("a", 2), figures("a", 3)):
        job.measured([] if now is None else [now])
        (first,), (second,) = (job.latest(job.reported(["a"])) for _ in range(2))
        assert first is second
        assert first.records_in == (7 if now is None else 7 + now.records_in)
