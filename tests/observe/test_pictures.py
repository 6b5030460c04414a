"""What a person sees: 80 columns, bars that are always full, and the cause marked."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from headgate.base.messages import TaskFigures, TaskState
from headgate.observe.analysis.explain import diagnose
from headgate.observe.job_view import (
    JobView,
    describe_end,
    describe_job,
    short_number,
    stands_still,
)
from headgate.observe.pictures import PROGRESS_BAR, draw_bar, draw_job
from tests.observe.kit import END, MIDDLE, SOURCE, details, figures, three_vertices, window_of

SLOW_END = [
    figures(SOURCE, made=5_000, out=5_000, busy=50, held_up=900, idle=50),
    figures(MIDDLE, records=12_345_678, out=4_000, busy=20, held_up=960, idle=20),
    figures(END, records=3_000, busy=1000),
]


def view(tasks: list[TaskFigures], status: str = "running") -> JobView:
    window = window_of(three_vertices(), tasks)
    return JobView("orders", status, 12.4, details(window), diagnose(window, complete=False))


def drawn(shown: JobView) -> list[str]:
    console = Console(file=io.StringIO(), width=80, legacy_windows=False)
    console.print(draw_job(shown))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_a_table_fits_into_80_columns_and_shows_every_vertex() -> None:
    lines = drawn(view(SLOW_END))
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("orders  running  12 s")
    assert "12.3M" in lines[3] and "▒▒▒▒▒▒▒▒" in lines[3]
    assert "█" * PROGRESS_BAR in lines[4]
    assert "bottleneck: 'slow -> Sink: end' limits the job" in lines[5]


def test_vertices_that_have_not_begun_or_have_ended_have_no_bar() -> None:
    ended = [figures(SOURCE, task, state=TaskState.FINISHED) for task in range(2)]
    lines = drawn(view(ended))
    assert "ended" in lines[2]
    assert "starting" in lines[3]


def test_a_vertex_runs_as_long_as_one_of_its_tasks() -> None:
    tasks = [figures(SOURCE, 0, state=TaskState.FINISHED), figures(SOURCE, 1)]
    assert [stands_still(vertex) for vertex in view(tasks).vertices] == ["", *["starting"] * 2]
    assert stands_still(view(tasks[:1]).vertices[SOURCE]) == "starting", "the other one"


def test_log_lines_name_job_vertex_and_shares() -> None:
    lines = describe_job(view(SLOW_END))
    assert lines[0] == (
        "orders: 2 x Source: numbers: 5,000 in, 5,000 out, 5,000 in/s, "
        "busy 5%, back-pressured 90%, idle 5%"
    )
    assert "bottleneck" in lines[-1]
    assert describe_job(view([])) == []


def test_the_closing_line_counts_what_the_sources_made() -> None:
    assert describe_end(view(SLOW_END[:1], "finished")) == (
        "orders: finished after 12.4 s, 5,000 records"
    )
    single = view([figures(0, made=1)], "finished")
    assert describe_end(single).endswith(" s, 1 record")


@given(*[st.floats(0, 1e6)] * 3)
def test_a_bar_is_always_as_long(busy: float, held_up: float, idle: float) -> None:
    vertex = view([figures(END, busy=busy, held_up=held_up, idle=idle)]).vertices[END]
    assert len(draw_bar(vertex, 20, "red", "")) == 20


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (9_999, "9,999"), (12_345, "12.3k"), (999_600, "1.00M"), (1.5e15, "1500T")],
)
def test_numbers_are_short(number: float, text: str) -> None:
    assert short_number(number) == text


@given(st.integers(0, 10**15))
def test_numbers_fit_into_their_column(number: int) -> None:
    assert len(short_number(number)) <= 6
