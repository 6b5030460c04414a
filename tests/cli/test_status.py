"""One job on one screen: for people, for programs, and for browsers."""

import json
import stat
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest
from msgspec import structs

from headgate.base.job_records import CheckpointRecord
from headgate.cli import status
from headgate.host.driver.control_server import ControlServer
from headgate.observe.pictures import describe_checkpoints
from headgate.observe.web.answers import CheckpointCount, CheckpointOverview
from tests.cli.kit import Done, Headgate
from tests.cli.page_kit import WHY, Page, announce_page, job_with_page, served
from tests.host.control_rig import TIMES
from tests.host.endpoint_kit import RecordingJob, served_endpoint


@pytest.fixture
def page(headgate: Headgate) -> Iterator[Page]:
    with job_with_page() as page:
        yield page


def test_status_has_everything_on_one_screen(headgate: Headgate, page: Page) -> None:
    done = headgate("status")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    assert lines[0] == (f"count orders  running for 2 min 5 s, restarted once  ab12cd  {page.url}")
    assert lines[1] == f"why: {WHY}"
    assert lines[2] == (
        "checkpoints: 40 completed, 1 failed; checkpoint 41 completed 3 s ago, took 120 ms, 2.5 MB"
    )
    assert lines[3] == "failed 1 min 0 s ago: ValueError: bad record  [31m7 in squares"
    assert " ".join(lines[5].split()) == "vertex in/s out/s busy bp idle cpu lag p99 state"
    assert " ".join(lines[8].split()) == (
        "2 2 x slow -> Sink: end 1,234 12.3k ████████████████ 98% 0% 2% 49% 1.2s 57ms 2.5 MB"
    )
    assert "█ busy" in lines[9]
    assert len(lines) <= 24, "one screen"


def test_status_tells_what_operators_left_out(headgate: Headgate, page: Page) -> None:
    text = "'hours' has dropped 1,007 records that came too late, by up to 120 ms"
    left_out = {"operator": "hours", "summary": text, "late": 1_007, "most-late-ms": 120}
    why = {"summary": WHY, "left-out": [left_out]}
    page.answers[""] = {**page.answers[""], "why": why}  # type: ignore[dict-item]
    lines = [line.rstrip() for line in headgate("status").stdout.splitlines()]
    assert lines[2] == f"left out: {text}"
    report = json.loads(headgate("status", "--json").stdout)
    assert report["left_out"] == [
        {"operator": "hours", "late": 1_007, "most_late_ms": 120, "skipped": 0, "dead_letters": 0}
    ]


def test_status_fits_into_80_columns(
    headgate: Headgate, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = headgate("status", "count orders").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert any("▒▒▒▒▒▒▒▒" in line and "squares" in line for line in lines)


def test_a_failure_begins_with_its_cause_and_is_not_cut(
    headgate: Headgate, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    cause = "ValueError: could not convert string to float: 'twelve and a half' in line 4711"
    failure = {
        "at-ms": 0,
        "kind": "headgate.base.errors.UserFunctionFailed",
        "operator": "Map: parse price",
        "message": f"operator 'Map: parse price' failed in open(): {cause}",
    }
    page.answers[""] = {**page.answers[""], "latest-failure": failure}  # type: ignore[dict-item]
    text = " ".join(line.strip() for line in headgate("status").stdout.splitlines())
    assert f" ago: {cause} in Map: parse price in open()" in text


def test_status_for_a_program_is_one_json_object(headgate: Headgate, page: Page) -> None:
    report = json.loads(headgate("status", "ab12", "--json").stdout)
    assert (report["job"], report["state"], report["seconds"], report["why"]) == (
        "ab12cd",
        "running",
        125.0,
        WHY,
    )
    assert report["checkpoint"]["took_ms"] == 120.0
    assert report["failure"]["kind"] == "builtins.ValueError"
    slow = report["vertices"][2]
    assert (slow["busy"], slow["watermark_lag_ms"], slow["in_per_s"]) == (0.98, 1234.0, 1234.5)
    assert report["vertices"][0]["latency_p99_ms"] is None


def test_a_job_that_has_only_begun_is_shown(headgate: Headgate, page: Page) -> None:
    page.answers[""] = {"jid": "ab12cd", "name": "new [red]", "state": "INITIALIZING"}
    del page.answers["/checkpoints"]
    done = headgate("status")
    assert done.returncode == 0
    assert "new [red]  initializing for 0 s" in done.stdout
    assert "checkpoints" not in done.stdout, "nothing is known about them"
    page.answers["/checkpoints"] = {}
    assert "no checkpoints" in headgate("status").stdout


def test_a_wrong_token_is_told_in_one_sentence(headgate: Headgate, page: Page) -> None:
    page.token = "other"
    done = headgate("status")
    assert done == Done(
        1, "", "headgate: job ab12cd (count orders): the token is missing or wrong\n"
    )


def test_a_job_without_a_page_says_how_to_get_one(headgate: Headgate) -> None:
    job = RecordingJob("ab12cd", "count orders")
    with ControlServer(times=TIMES) as server, served_endpoint(server, job):
        for words in (("status",), ("ui",), ("top", "--once"), ("peek", "ab", "0")):
            done = headgate(*words)
            assert (done.returncode, done.stdout) == (2, "")
            assert "has no web page to ask: start it with rest.enabled true" in done.stderr


def test_where_nothing_runs_it_is_said_how_to_start_a_job(headgate: Headgate) -> None:
    done = headgate("status")
    assert done.returncode == 2
    assert done.stderr.startswith("headgate: no job of yours runs on this machine; start one")


def test_a_list_has_the_pages_and_what_limits_each_job(headgate: Headgate, page: Page) -> None:
    head, line, why = headgate("list").stdout.splitlines()
    assert head.split() == ["id", "name", "state", "since", "process", "page"]
    assert line.endswith(page.url)
    assert why == f"    {WHY}"
    (row,) = json.loads(headgate("list", "--json").stdout)["jobs"]
    assert (row["page"], row["why"]) == (page.url, WHY)
    page.status[""] = 503
    assert len(headgate("list").stdout.splitlines()) == 2, "a list does not need the page"


def test_ui_prints_the_address_with_the_token_if_there_is_one(
    headgate: Headgate, page: Page
) -> None:
    assert headgate("ui").stdout == f"{page.url}#/jobs/ab12cd\n"
    page.token = "a/b c"
    announce_page(page)
    assert headgate("ui").stdout == f"{page.url}#token=a%2Fb%20c&path=/jobs/ab12cd\n"
    report = json.loads(headgate("ui", "--json").stdout)
    assert report["page"] == f"{page.url}#token=a%2Fb%20c&path=/jobs/ab12cd"


def test_a_browser_gets_the_token_through_a_file_that_is_the_users_alone(
    headgate: Headgate, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    def browser(address: str) -> bool:
        path = Path(url2pathname(urlsplit(address).path))
        opened.append((address, path, path.read_text(), stat.S_IMODE(path.stat().st_mode)))
        return True

    page.token = 'se"cret'
    announce_page(page)
    monkeypatch.setattr(webbrowser, "open", browser)
    monkeypatch.setattr(status, "BROWSER_S", 0.0)
    assert headgate("ui", "--open").returncode == 0
    ((address, path, text, mode),) = opened
    assert "cret" not in address, "all users can read command lines"
    assert f"url={page.url}#token=se%22cret&amp;path=/jobs/ab12cd" in text
    assert mode == 0o600
    assert not path.exists()


def test_without_a_token_the_browser_opens_the_page_itself(
    headgate: Headgate, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: not opened.append(address))
    assert headgate("ui", "--open").returncode == 0
    assert opened == [f"{page.url}#/jobs/ab12cd"]
    monkeypatch.setattr(webbrowser, "open", lambda address: False)
    done = headgate("ui", "--open")
    assert done.returncode == 1
    assert "no browser could be started; open the address yourself" in done.stderr


def test_a_job_whose_page_is_gone_is_cancelled_all_the_same(headgate: Headgate) -> None:
    job = RecordingJob("ab12cd", "count orders")
    with ControlServer(times=TIMES) as server, served_endpoint(server, job):
        with served(Page("ab12cd", "count orders")) as closed:
            announce_page(closed)
        done = headgate("cancel", "ab12cd")
    assert done == Done(0, "job ab12cd (count orders) is canceled\n", "")
    assert job.reasons == ["`headgate cancel` was called"]


def test_a_job_is_cancelled_by_its_page(headgate: Headgate, page: Page) -> None:
    assert headgate("cancel", "ab12cd").stdout == "job ab12cd (count orders) is canceled\n"
    assert ("PATCH", "", {"mode": "cancel"}) in page.asked


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("RUNNING", "running for 35 s"),
        ("RESTARTING", "restarting, started 35 s ago"),
        ("CANCELLING", "cancelling, started 35 s ago"),
        ("FINISHED", "finished after 35 s"),
    ],
)
def test_a_job_s_age_goes_with_its_state(
    headgate: Headgate, page: Page, state: str, words: str
) -> None:
    page.answers[""].update({"state": state, "start-time": 1_000_000, "now": 1_035_000})
    assert f"count orders  {words}" in headgate("status").stdout


def test_a_checkpoint_that_is_not_complete_has_not_taken_a_time() -> None:
    newest = CheckpointRecord(7, "checkpoint", "in_progress", 6_000, 3_900)
    seen = CheckpointOverview(CheckpointCount(1, 0, 0, 1), "", [newest])
    assert describe_checkpoints(seen, 10_000).plain.endswith("; checkpoint 7 in progress for 4 s")
    seen.history[0] = structs.replace(newest, status="completed")
    line = describe_checkpoints(seen, 13_000).plain
    assert line.endswith("; checkpoint 7 completed 3 s ago, took 3.9 s, 0 B")
