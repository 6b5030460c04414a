"""What `headgate top` draws, and what keys make of it."""

import io
from dataclasses import replace

import msgspec
import pytest
from rich.console import Console

from headgate.cli.full_screen import SpecialKey, decode_keys
from headgate.cli.top_view import ListedJob, ShownLevel, SortedBy, TopView, draw_frame
from headgate.observe.analysis.windows import TaskCounters
from headgate.observe.job_view import short_bytes, short_ms, short_time
from headgate.observe.pictures import Facts, draw_bar
from headgate.observe.web.answers import JobDetails, VertexSubtasks
from headgate.observe.web.json_objects import decode
from tests.cli.page_kit import SLOW, SUBTASKS, WHY, job_answer


def decoded(answer: object) -> JobDetails:
    return decode(msgspec.json.encode(answer), JobDetails, lenient=True)


FACTS = Facts(decoded(job_answer("ab12", "orders")), "http://127.0.0.1:8081/")
TASKS = decode(
    msgspec.json.encode({**SLOW, "subtasks": SUBTASKS}), VertexSubtasks, lenient=True
).subtasks
VIEW = TopView(ShownLevel.VERTICES, job="ab12").answered(FACTS)


def lines_of(view: TopView, width: int = 100, height: int | None = None) -> list[str]:
    console = Console(file=io.StringIO(), width=width, legacy_windows=False)
    console.print(draw_frame(view, width, height))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def pressed(view: TopView, *keys: SpecialKey | str) -> TopView:
    for key in keys:
        view = view.pressed(key)
    return view


def test_a_frame_has_the_answer_to_why_and_every_vertex() -> None:
    lines = lines_of(VIEW)
    assert f"why: {WHY}" in lines
    assert any(line.startswith("> 0 2 x Source: numbers") for line in lines), "it is selected"
    assert "▒▒▒▒▒▒▒▒▒▒▒▒" in lines[-4] and "█" * 16 in lines[-2]
    assert lines[-1].startswith("up/down select  enter opens  s sorts (plan)  q quits   █ busy")


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("height", [8, 12, 24])
def test_a_frame_never_leaves_its_screen(width: int, height: int) -> None:
    names = [{**SLOW, "id": str(number), "name": "a name " * 9} for number in range(30)]
    answer = {**job_answer("ab12", "orders"), "vertices": names}
    answer["why"] = {"summary": "much is to be said about it. " * 40}
    facts = replace(FACTS, job=decoded(answer))
    view = pressed(VIEW.answered(facts), *[SpecialKey.DOWN] * 17)
    lines = lines_of(view, width, height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert any(line.startswith("> 17") for line in lines), "the selected line is always shown"


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_digit_of_a_figure_is_cut_however_narrow_the_screen_is(width: int) -> None:
    wide = {
        **SLOW,
        "name": "a name " * 9,
        "rates": {"in-per-s": 9_999.0, "out-per-s": 9_999.0},
        "busy": 1.0,
        "max-busy": 1.0,
        "watermark-lag-ms": 1_763_000_000_000.0,
        "latency-p99-ms": 99_000.0,
        "state-bytes": 999_000_000_000,
    }
    answer = {**job_answer("ab12", "orders"), "vertices": [wide] * 2}
    facts = replace(FACTS, job=decoded(answer))
    lines = lines_of(VIEW.answered(facts), width)
    row = next(line for line in lines if "█████" in line and "busy" not in line)
    shown = ["9,999"] + ["20405d", "99s"] * (width >= 64) + ["100%", "999 GB"] * (width >= 100)
    assert [figure for figure in shown if figure in row] == shown
    assert "127.0.0.1:8081" in "".join(lines), "nor one of the head"
    subtasks = replace(VIEW.answered(facts, TASKS), level=ShownLevel.SUBTASKS)
    assert "12.3k" in lines_of(subtasks, max(width, 64))[-2]


def test_a_long_name_of_a_job_leaves_room_for_its_id() -> None:
    job = ListedJob("0123456789abcdef", "a name " * 20, "RUNNING", "it keeps up")
    view = TopView(ShownLevel.JOBS).listed([job])
    assert any(line.startswith("> 0123456789abcdef  a name") for line in lines_of(view, 80))


def test_keys_select_open_and_leave() -> None:
    view = pressed(VIEW, SpecialKey.DOWN, SpecialKey.DOWN, SpecialKey.DOWN)
    assert view.vertex == "2", "the last one stays selected"
    assert pressed(view, SpecialKey.UP).vertex == "1"
    assert pressed(view, SpecialKey.HOME).vertex == "0"
    opened = pressed(view, SpecialKey.ENTER)
    assert opened.level is ShownLevel.SUBTASKS
    shown = opened.answered(FACTS, TASKS)
    lines = lines_of(shown)
    assert "vertex 2: slow -> Sink: end" in lines
    assert any("> 0 here:77" in line and line.endswith(" 7") for line in lines), "queued buffers"
    assert pressed(shown, SpecialKey.END).subtask == 1
    left = pressed(shown, SpecialKey.ESCAPE)
    assert (left.level, left.vertex) == (ShownLevel.VERTICES, "2")
    assert pressed(left, SpecialKey.ESCAPE) == left, "there is no list to go back to"
    assert pressed(left, "x", "\x00").quits is False
    assert pressed(left, "q").quits


def test_lines_are_sorted_by_what_was_chosen() -> None:
    assert [vertex.id for vertex in VIEW.vertices] == ["0", "1", "2"]
    busy = pressed(VIEW, "s")
    assert (busy.order, [vertex.id for vertex in busy.vertices]) == (
        SortedBy.BUSY,
        ["2", "1", "0"],
    )
    held_up = pressed(busy, "s")
    assert [vertex.id for vertex in held_up.vertices] == ["0", "1", "2"]
    assert pressed(held_up, "s", "s").order is SortedBy.PLAN
    assert pressed(busy, SpecialKey.UP).vertex == "1", "up means up on the screen"


def test_several_jobs_are_a_list_from_which_one_is_opened() -> None:
    jobs = [ListedJob("ab", "orders", "RUNNING", WHY), ListedJob("cd", "[b]", "SILENT")]
    view = TopView(ShownLevel.JOBS, has_list=True).listed(jobs)
    lines = lines_of(view)
    assert lines[0] == "2 jobs"
    assert any(line.startswith("> ab") and "'slow' limits" in line for line in lines)
    assert any("[b]" in line and "silent" in line for line in lines)
    opened = pressed(view, SpecialKey.DOWN, SpecialKey.ENTER)
    assert (opened.level, opened.job) == (ShownLevel.VERTICES, "cd")
    assert pressed(opened, SpecialKey.ESCAPE).level is ShownLevel.JOBS
    assert view.listed(jobs[1:]).job == "cd", "the selected job has ended"
    assert pressed(view.listed([]), SpecialKey.DOWN, SpecialKey.ENTER).level is ShownLevel.JOBS


def test_a_vertex_that_is_no_more_there_is_not_selected() -> None:
    view = pressed(VIEW, SpecialKey.DOWN)
    other = replace(FACTS, job=msgspec.structs.replace(FACTS.job, vertices=[]))
    assert view.answered(other).vertex == ""
    assert lines_of(view.answered(other))


def test_a_notice_is_shown_with_what_was_seen_last() -> None:
    lines = lines_of(replace(VIEW, notice="its driver is\x1b gone"))
    assert "its driver is  gone" in lines
    assert any("slow" in line for line in lines)


def test_a_bar_is_full_or_has_a_word() -> None:
    nearly = TaskCounters(busy_ms=999, hard_backpressured_ms=1)
    assert draw_bar(nearly, 16, "red", "blue").plain == "█" * 16
    mixed = TaskCounters(busy_ms=1, soft_backpressured_ms=2, idle_ms=1)
    assert draw_bar(mixed, 16, "red", "blue").plain == "████▒▒▒▒▒▒▒▒····"
    still = {"id": "0", "name": "still"}
    answers = [{**still, "status": "FINISHED"}, {**still, "status": ""}]
    facts = replace(FACTS, job=decoded({**job_answer("ab12", "orders"), "vertices": answers}))
    finished, silent = lines_of(VIEW.answered(facts), 120)[-3:-1]
    assert "finished" in finished and "no figures yet" in silent


def test_keys_are_told_apart() -> None:
    typed = b"s\x1b[A\x1bOB\r\x1b[1;5C\x1b[4~q\x1b"
    assert list(decode_keys(typed)) == [
        "s",
        SpecialKey.UP,
        SpecialKey.DOWN,
        SpecialKey.ENTER,
        SpecialKey.END,
        "q",
        SpecialKey.ESCAPE,
    ]
    assert list(decode_keys(b"\x1b[")) == [], "a sequence that was cut"


def test_figures_are_short() -> None:
    assert [short_ms(ms) for ms in (0, 999, 1000, 9_999, 99_000, 5_000_000, 4e7, 1e10)] == [
        "0ms",
        "999ms",
        "1.0s",
        "10.0s",
        "99s",
        "83min",
        "11h",
        "116d",
    ]
    assert [short_time(s) for s in (0, 61, 7_300, 100_000)] == [
        "0 s",
        "1 min 1 s",
        "2 h 1 min",
        "1 d 3 h",
    ]
    assert [short_bytes(size) for size in (0, 999, 1_000, 12_345, 1.2e6, 5e15)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "12 kB",
        "1.2 MB",
        "5,000.0 TB",
    ]
