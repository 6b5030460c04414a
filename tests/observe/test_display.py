"""The display: every job that was watched has its closing line, in a terminal and in a log."""

import io
import logging

import pytest
from rich.console import Console

from headgate.base.messages import TaskFigures
from headgate.observe.display import Display, _Watch
from headgate.observe.job_view import describe_job
from headgate.observe.pictures import draw_html, draw_job
from tests.observe.kit import END, SOURCE, ScriptedJob, figures, three_vertices


def a_job() -> ScriptedJob:
    """Ends when it is told to."""
    tasks = [figures(SOURCE, made=7, busy=10), figures(END, records=7, busy=10)]
    return ScriptedJob(three_vertices(), tasks)


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=80, legacy_windows=False)


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_terminal_shows_the_table_and_then_one_line_for_each_job() -> None:
    console = terminal()
    display = Display(console)
    jobs = [a_job(), a_job()]
    for job in jobs:
        display.watch(job)
    for job in jobs:
        assert job.looked_at.wait(30)
        job.ended.set()
    display.close()
    assert "back-pressured" in text_of(console)
    assert text_of(console).count("finished after") == 2


def test_a_second_job_is_shown_after_the_first_has_ended() -> None:
    console = terminal()
    display = Display(console)
    for _ in range(3):
        job = a_job()
        job.ended.set()
        display.watch(job)
        display.close()
    assert text_of(console).count("finished after") == 3


def test_without_a_terminal_the_log_has_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headgate.progress")
    display = Display(Console(file=io.StringIO()), log_s=0.01)
    job = a_job()
    display.watch(job)
    while not any("7 in" in message for message in caplog.messages):
        assert job.looked_at.wait(30)
        job.looked_at.clear()
    job.ended.set()
    display.close()
    assert caplog.messages[-1].endswith("s, 7 records")


def test_what_a_job_waits_for_is_shown_and_logged() -> None:
    job = a_job()
    job.waiting = "waiting for 4 slots"
    view = _Watch(job).view()
    assert describe_job(view)[-1] == "unnamed: running, waiting for 4 slots"
    assert "waiting for 4 slots" in draw_html(view)
    console = terminal()
    console.print(draw_job(view))
    assert "waiting for 4 slots" in text_of(console)
    job.ended.set()
    watch = _Watch(job)
    watch.look()
    assert watch.view().waits_for == "", "it has ended"


def test_a_job_that_still_runs_is_told_when_the_display_closes() -> None:
    console = terminal()
    display = Display(console)
    display.watch(a_job())
    display.close()
    assert "orders" not in text_of(console)
    assert "running after" in text_of(console)


def test_trouble_of_the_display_is_logged_and_ends_it(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(ScriptedJob):
        def figures(self) -> list[TaskFigures]:
            raise RuntimeError("no figures")

    display = Display(terminal())
    display.watch(Broken(three_vertices()))
    display.close()
    assert "the jobs go on" in caplog.text
