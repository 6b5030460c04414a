"""`headgate flame` and `headgate peek`: what they ask, and what they show of the answers."""

import json
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.kit import Done, Headgate
from tests.cli.page_kit import Page, job_with_page

STEP = "Task.step (headgate/core/task/task.py:77)"
PARSE = "parse (job.py:12)"
TREE = {
    "samples": 200,
    "wall-ms": 2000.0,
    "cpu-ms": 500.0,
    "subtasks": [0, 1],
    "data": {
        "name": "slow",
        "value": 200,
        "children": [
            {"name": STEP, "value": 200, "children": [{"name": PARSE, "value": 150}]},
        ],
    },
}
WAITING = {
    "gate": 0,
    "channels": 2,
    "entries": [
        {
            "channel": 1,
            "kind": "record",
            "text": "{'id': 7}\x1b[2J",
            "key": "'seven'",
            "timestamp-ms": 1_700_000_000_123,
            "place": "arrived",
        },
        {"channel": 1, "kind": "watermark", "text": "1700000000000", "place": "arrived"},
        {"channel": 0, "kind": "record", "text": "[bold]", "timestamp-ms": 1 << 62},
    ],
    "records": 1234,
    "buffers": 17,
    "complete": True,
    "subtask": 0,
}


@pytest.fixture
def page(headgate: Headgate) -> Iterator[Page]:
    with job_with_page() as page:
        page.answers["/vertices/2/flamegraph"] = TREE
        page.answers["/vertices/2/peek"] = WAITING
        yield page


def test_a_flame_graph_in_a_terminal_is_a_table_with_the_users_lines_first(
    headgate: Headgate, page: Page
) -> None:
    done = headgate("flame", "ab", "slow", "--seconds", "2", "--cpu")
    assert (done.returncode, done.stderr) == (0, "")
    head, columns, first, second = [line.strip() for line in done.stdout.splitlines()]
    assert head == (
        "slow -> Sink: end  200 samples of 2 tasks within 1.0 s, on a CPU for 25% of it; "
        "shown is CPU time"
    )
    assert columns.split() == ["self", "total", "frame"]
    assert first.split() == ["75.0%", "75.0%", *PARSE.split(), "your", "code"]
    assert second.startswith("25.0%  100.0%  Task.step")
    query = {"subtask": "all", "seconds": "2", "hertz": "100", "type": "on_cpu"}
    assert page.asked[-1] == ("GET", "/vertices/2/flamegraph", query)


def test_a_flame_graph_goes_to_files(headgate: Headgate, page: Page, tmp_path: Path) -> None:
    svg, stacks = tmp_path / "f.svg", tmp_path / "f.txt"
    done = headgate("flame", "ab", "2", "--subtask", "1", "--svg", svg, "--folded", stacks)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"written to {svg}\nwritten to {stacks}\n"
    picture = ElementTree.fromstring(svg.read_text())
    assert picture[0].text == "count orders: slow -> Sink: end, subtask 1"
    assert stacks.read_text() == f"{STEP} 50\n{STEP};{PARSE} 150\n"
    assert page.asked[-1][2]["subtask"] == "1" and page.asked[-1][2]["type"] == "full"


def test_a_file_that_cannot_be_written_is_wrong_usage(
    headgate: Headgate, page: Page, tmp_path: Path
) -> None:
    done = headgate("flame", "ab", "2", "--svg", tmp_path / "no" / "f.svg")
    assert done.returncode == 2
    assert "No such file or directory" in done.stderr


def test_tasks_that_were_never_seen_are_told(headgate: Headgate, page: Page) -> None:
    page.answers["/vertices/2/flamegraph"] = {"samples": 0, "data": {"name": "slow"}}
    assert "no stack was seen" in headgate("flame", "ab", "2").stdout


@pytest.mark.parametrize("command", ["flame", "peek"])
def test_a_vertex_is_called_by_number_name_or_a_part_that_only_it_has(
    headgate: Headgate, page: Page, command: str
) -> None:
    for called in ("2", "slow -> Sink: end", "SLOW", "end"):
        assert headgate(command, "ab", called).returncode == 0
    done = headgate(command, "ab", "s")
    assert done == Done(
        2,
        "",
        "headgate: 's' may be any of 3 vertices; name one of 0 (Source: numbers), 1 (squares), "
        "2 (slow -> Sink: end)\n",
    )
    assert headgate(command, "ab", "7").stderr.startswith("headgate: '7' is no vertex of the job;")
    assert headgate(command, "ab", "").returncode == 2


def test_waiting_records_are_shown_with_channel_time_and_key(
    headgate: Headgate, page: Page
) -> None:
    done = headgate("peek", "ab", "slow", "--channel", "1", "--limit", "3")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    assert lines[0] == (
        "1,234 records wait in front of subtask 0 of 'slow -> Sink: end' in 17 buffers; shown are 2"
    )
    assert lines[1].split() == ["channel", "kind", "time", "key", "record"]
    assert "1  record     2023-11-14 22:13:20.123Z  'seven'  {'id': 7} [2J" in lines[2]
    assert lines[4].endswith("[bold]") and str(1 << 62) in lines[4]
    query = {"subtask": "0", "gate": "0", "channel": "1", "limit": "3"}
    assert page.asked[-1] == ("GET", "/vertices/2/peek", query)


def test_waiting_records_for_a_program_are_one_json_object(headgate: Headgate, page: Page) -> None:
    report = json.loads(headgate("peek", "ab", "slow", "--json").stdout)
    assert (report["vertex"], report["records"], report["complete"]) == ("2", 1234, True)
    assert report["entries"][0] == {
        "channel": 1,
        "kind": "record",
        "text": "{'id': 7}\x1b[2J",
        "key": "'seven'",
        "timestamp_ms": 1_700_000_000_123,
        "place": "arrived",
    }


def test_it_is_said_plainly_that_nothing_waits(headgate: Headgate, page: Page) -> None:
    page.answers["/vertices/2/peek"] = {"channels": 2}
    assert headgate("peek", "ab", "2").stdout == (
        "nothing waits in front of subtask 0 of 'slow -> Sink: end': it reads its input as fast as "
        "it comes\n"
    )
    page.answers["/vertices/2/peek"] = {"channels": 2, "buffers": 5}
    assert headgate("peek", "ab", "2").stdout.startswith("5 buffers wait in front of subtask 0")


def test_what_the_driver_refuses_is_its_sentence(headgate: Headgate, page: Page) -> None:
    page.status["/vertices/2/peek"] = 409
    page.answers["/vertices/2/peek"] = {"errors": ["subtask 9 does not run"]}
    done = headgate("peek", "ab", "2", "--subtask", "9")
    assert done == Done(1, "", "headgate: job ab12cd (count orders): subtask 9 does not run\n")


def test_tables_in_80_columns_fold_texts_and_keep_all_digits(
    headgate: Headgate, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    digits = "0123456789" * 20
    entry = {**WAITING["entries"][0], "channel": 12345, "text": digits, "key": digits}  # type: ignore[index]
    page.answers["/vertices/2/peek"] = {**WAITING, "entries": [entry]}
    frame = {"name": f"{'name' * 40} (job.py:4711)", "value": 200}
    page.answers["/vertices/2/flamegraph"] = {
        **TREE,
        "data": {"name": "slow", "value": 200, "children": [frame]},
    }
    for command, figures in {
        "peek": ["12345", "2023-11-14 22:13:20.123Z"],
        "flame": ["100.0%"],
    }.items():
        text = headgate(command, "ab", "slow").stdout
        assert "…" not in text
        assert max(map(len, text.splitlines()[1:])) <= 80
        assert all(figure in text for figure in figures)
