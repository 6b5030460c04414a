"""`headgate why`: a paragraph and a table for people, the whole diagnosis for programs."""

import json
from collections.abc import Iterator

import msgspec
import pytest
from msgspec.structs import replace

from headgate.observe.analysis.diagnosis import Diagnosis, LeftOutRecords
from headgate.observe.analysis.explain import cannot_say, diagnose
from tests.cli.kit import Headgate
from tests.cli.page_kit import Page, job_with_page
from tests.observe.kit import END, MIDDLE, SOURCE, figures, three_vertices, window_of

FOUND = diagnose(
    window_of(
        three_vertices(1),
        [
            figures(SOURCE, made=1_000, busy=1_000, held_up=9_000, outputs=[1_000]),
            figures(MIDDLE, records=1_000, busy=2_000, held_up=8_000, outputs=[1_000]),
            figures(END, records=1_000, busy=10_000, cpu=9_000),
        ],
    )
)


@pytest.fixture
def page(headgate: Headgate, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    monkeypatch.setenv("COLUMNS", "80")
    with job_with_page() as page:
        page.answers["/why"] = msgspec.to_builtins(FOUND)
        yield page


@pytest.mark.parametrize("columns", [40, 60, 80, 100])
def test_a_narrow_terminal_gets_fewer_columns_and_all_digits(
    headgate: Headgate, page: Page, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    advice = tuple(
        replace(
            each,
            name="flat_map -> key_by -> Sink: orders of all countries",
            rate=1_234_567.0,
            true_rate=2_345_678.0,
            target_rate=3_456_789.0,
            busy=1.0,
            backpressured=1.0,
            suggested=128,
            limited_by="source splits",
        )
        for each in FOUND.advice
    )
    page.answers["/why"] = msgspec.to_builtins(replace(FOUND, advice=advice))
    lines = headgate("why").stdout.splitlines()
    head, *rows = [line.rstrip() for line in lines[lines.index("") + 1 :]]
    assert max(map(len, [head, *rows])) <= columns
    figures_of = {
        "rate/s": "1,234,567",
        "possible/s": "2,345,678",
        "target/s": "3,456,789",
        "busy": "100%",
        "bp": "100%",
        "tasks": "1",
        "suggested": "128 (source splits)",
    }
    shown = head.split()[1:]
    assert set(shown) <= set(figures_of) and {"tasks", "suggested"} <= set(shown)
    assert columns < 100 or len(shown) == 7
    for row in rows:
        assert row.endswith("  ".join(figures_of[name].rjust(len(name)) for name in shown))


def test_what_operators_left_out_stands_below_the_paragraph(headgate: Headgate, page: Page) -> None:
    text = "'hours' has dropped 1,007 records that came too late, by up to 120 ms"
    left_out = LeftOutRecords(1, "hours", text, 1_007, 120)
    page.answers["/why"] = msgspec.to_builtins(replace(FOUND, left_out=(left_out,)))
    lines = [line.rstrip() for line in headgate("why").stdout.splitlines()]
    assert f"Left out: {text}." in " ".join(lines)
    report = json.loads(headgate("why", "--json").stdout)
    assert report["left-out"][0]["most-late-ms"] == 120


def test_people_get_a_paragraph_that_fits_and_a_line_for_each_vertex(
    headgate: Headgate, page: Page
) -> None:
    done = headgate("why")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    assert max(map(len, lines)) <= 80
    blank = lines.index("")
    assert " ".join(lines[:blank]) == FOUND.summary
    assert lines[blank + 1].split() == [
        *("vertex", "rate/s", "possible/s", "target/s", "busy", "bp", "tasks", "suggested")
    ]
    assert lines[-1].split() == [
        *("slow", "->", "Sink:", "end", "100", "100", "1,000", "100%", "0%", "1", "13")
    ]
    assert page.asked == [("GET", "/why", {"seconds": "2"})]


def test_programs_get_the_whole_diagnosis(headgate: Headgate, page: Page) -> None:
    done = headgate("why", "ab12", "--json", "--quick", "--seconds", "0.5")
    assert json.loads(done.stdout)["possible-rate"] == FOUND.possible_rate
    assert msgspec.json.decode(done.stdout, type=Diagnosis) == FOUND
    assert page.asked == [("GET", "/why", {"seconds": "0.5", "quick": "true"})]


def test_an_answer_without_advice_is_a_sentence(headgate: Headgate, page: Page) -> None:
    page.answers["/why"] = msgspec.to_builtins(cannot_say("the job is\x1b[31m restarting"))
    assert headgate("why").stdout.strip() == "Cannot say yet: the job is [31m restarting."


def test_trouble_is_one_sentence(headgate: Headgate, page: Page) -> None:
    page.answers["/why"] = {"cause": 7}
    done = headgate("why")
    assert done.returncode != 0 and "another version of Headgate" in done.stderr
    assert headgate("why", "nosuch").returncode == 2
