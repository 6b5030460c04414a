"""What operators leave out by design reaches everybody who shows the job."""

import pytest
from msgspec.structs import replace

from headgate.base.figures import OperatorFigures
from headgate.base.messages import TaskFigures
from headgate.observe.analysis.diagnosis import LeftOutRecords, left_out_of
from headgate.observe.job_view import JobView, describe_end, describe_job
from headgate.observe.observer import JobObserver
from headgate.observe.pictures import draw_html, draw_job
from headgate.observe.web.job_answers import operators_of
from tests.observe.kit import END, MIDDLE, SOURCE, ScriptedJob, details, figures, three_vertices


def with_operators(task: TaskFigures, *operators: OperatorFigures) -> TaskFigures:
    return replace(task, operators=operators)


def leaving_out() -> list[TaskFigures]:
    """Two subtasks that drop late records, one of which skips some as well."""
    quiet = OperatorFigures("parse", 10, 10)
    return [
        with_operators(figures(SOURCE, made=10), quiet),
        with_operators(figures(MIDDLE, 0), quiet, OperatorFigures("hours", 9, 1, 0, 0, 7, 120)),
        with_operators(figures(MIDDLE, 1), quiet, OperatorFigures("hours", 9, 1, 1, 2, 1_000, 45)),
        with_operators(figures(END, 0), OperatorFigures("join", 5, 5, late=1, most_late_ms=95_000)),
    ]


def test_records_after_the_end_of_event_time_are_not_late_by_any_time() -> None:
    dropped = with_operators(figures(MIDDLE, 0), OperatorFigures("hours", 5, 5, late=2))
    (found,) = left_out_of([dropped])
    assert found.summary == (
        "'hours' has dropped 2 records that came too late, after the end of event time"
    )


def test_subtasks_are_added_up_and_the_latest_of_all_counts() -> None:
    assert left_out_of(leaving_out()) == (
        LeftOutRecords(
            MIDDLE,
            "hours",
            "'hours' has dropped 1,007 records that came too late, by up to 120 ms; 'hours' has "
            "skipped 1 record that failed; 'hours' has sent 2 dead letters",
            late=1_007,
            most_late_ms=120,
            skipped=1,
            dead_letters=2,
        ),
        LeftOutRecords(
            END,
            "join",
            "'join' has dropped 1 record that came too late, by up to 95 s",
            late=1,
            most_late_ms=95_000,
        ),
    )


def test_a_job_that_leaves_out_nothing_has_no_line() -> None:
    tasks = [with_operators(figures(SOURCE), OperatorFigures("parse", 10, 10)), figures(END)]
    assert left_out_of(tasks) == ()


@pytest.mark.parametrize("ends", [False, True])
def test_every_diagnosis_has_it_whatever_else_can_be_said(ends: bool) -> None:
    job = ScriptedJob(three_vertices(), leaving_out())
    observer = JobObserver(job)
    if ends:
        job.ended.set()
    observer.look(1_000.0)
    for found in (observer.quick_diagnosis(), observer.diagnose(seconds=0.1)):
        assert [(each.operator, each.late) for each in found.left_out] == [
            ("hours", 1_007),
            ("join", 1),
        ]


def test_displays_and_the_last_line_of_a_job_tell_it() -> None:
    job = ScriptedJob(three_vertices(), leaving_out())
    observer = JobObserver(job)
    observer.look(1_000.0)
    view = JobView("orders", "running", 3.0, details(observer.window()), observer.quick_diagnosis())
    late = "left out: 'join' has dropped 1 record that came too late, by up to 95 s"
    assert f"orders: {late}" in describe_job(view)
    assert describe_end(view).endswith(f"; {late}")
    assert late in str(draw_job(view).caption)  # type: ignore[union-attr]
    assert "came too late, by up to 95 s" in draw_html(view)


def test_the_operators_of_a_vertex_have_the_same_figures() -> None:
    graph = three_vertices()
    (first, *_) = operators_of(
        graph.vertices[END],
        [
            with_operators(figures(END, 0), OperatorFigures("x", 1, 1, 1, 1, 5, 50)),
            with_operators(figures(END, 1), OperatorFigures("x", 1, 1, 1, 1, 6, 40)),
        ],
    )
    assert (first.late_records_dropped, first.most_late_ms) == (11, 50)
    assert (first.records_skipped, first.dead_letters) == (2, 2)
