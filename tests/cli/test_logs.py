"""`headgate logs`: what it asks for, what it shows, when it ends."""

import json
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from headgate.cli import logs
from tests.cli.kit import Headgate
from tests.cli.page_kit import NOW, Page, job_with_page


def line(number: int, message: str, level: str = "WARNING", **more: object) -> dict[str, object]:
    return {
        "number": number,
        "at-ms": NOW,
        "level": level,
        "logger": "shop",
        "message": message,
        "task": "",
        "subtask": -1,
        "attempt": 0,
        "operator": "",
        "host": "driver",
        "traceback": "",
        **more,
    }


LINES = [
    line(1, "it begins", "INFO"),
    line(2, "no price\x1b[2J", task="map -> Sink", subtask=1, operator="map", host="here:77"),
    line(3, "broken", "ERROR", traceback="Traceback:\nValueError: gone"),
    line(4, "of a level of its own", "NOTICE"),
]


@pytest.fixture
def page(headgate: Headgate, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    monkeypatch.setattr(logs, "LOOK_S", 0.02)
    with job_with_page() as opened:
        opened.answers["/logs"] = {"lines": LINES, "next": 4}
        yield opened


def test_lines_look_as_in_the_log(page: Page, headgate: Headgate) -> None:
    done = headgate("logs")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        '2027-01-15T08:00:00.000Z INFO shop it begins job="count orders" attempt=0 host=driver',
        '2027-01-15T08:00:00.000Z WARNING shop no price [2J job="count orders" operator=map '
        'task="map -> Sink" subtask=1 attempt=0 host=here:77',
        '2027-01-15T08:00:00.000Z ERROR shop broken job="count orders" attempt=0 host=driver',
        "Traceback:",
        "ValueError: gone",
        "2027-01-15T08:00:00.000Z NOTICE shop of a level of its own "
        'job="count orders" attempt=0 host=driver',
    ]
    assert page.asked[-1] == ("GET", "/logs", {"after": "0", "limit": "1000"})


def test_json_lines_have_the_same_fields(page: Page, headgate: Headgate) -> None:
    done = headgate("logs", "ab12", "--json")
    objects = [json.loads(text) for text in done.stdout.splitlines()]
    assert [found["message"] for found in objects] == [found["message"] for found in LINES]
    assert objects[1]["job_id"] == "ab12cd"
    assert objects[1]["subtask"] == 1
    assert "subtask" not in objects[0]
    assert objects[2]["traceback"] == "Traceback:\nValueError: gone"


@pytest.mark.parametrize(
    ("flags", "numbers"),
    [
        (("--level", "warning"), [2, 3, 4]),
        (("--level", "error"), [3, 4]),
        (("--tail", "1"), [4]),
        (("--tail", "0"), []),
        (("--tail", "100", "--level", "info"), [1, 2, 3, 4]),
    ],
)
def test_some_can_be_left_out(
    page: Page, headgate: Headgate, flags: tuple[str, ...], numbers: list[int]
) -> None:
    done = headgate("logs", "--json", *flags)
    found = [json.loads(text)["message"] for text in done.stdout.splitlines()]
    assert found == [LINES[number - 1]["message"] for number in numbers]


def test_following_ends_with_the_job(page: Page, headgate: Headgate) -> None:
    def go_on() -> None:
        _await(lambda: sum(asked[1] == "/logs" for asked in page.asked) >= 3)
        page.answers["/logs"] = {"lines": [*LINES, line(5, "it ends")], "next": 5}
        page.job["state"] = "FINISHED"

    thread = threading.Thread(target=go_on)
    thread.start()
    done = headgate("logs", "--follow", "--json")
    thread.join()
    assert done.returncode == 0
    messages = [json.loads(text)["message"] for text in done.stdout.splitlines()]
    assert messages == [*[found["message"] for found in LINES], "it ends"]


def test_following_ends_with_the_driver_too(page: Page, headgate: Headgate) -> None:
    gone = threading.Thread(target=_close_after, args=(page,))
    gone.start()
    done = headgate("logs", "-f")
    gone.join()
    assert done.returncode == 0
    assert "the driver of job ab12cd (count orders) has ended" in done.stderr


def _close_after(page: Page) -> None:
    _await(lambda: sum(asked[1] == "/logs" for asked in page.asked) >= 2)
    page.hangs_up = True


def _await(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_driver_of_another_version_is_a_sentence(page: Page, headgate: Headgate) -> None:
    del page.answers["/logs"]
    done = headgate("logs")
    assert done.returncode == 1
    assert "there is nothing" in done.stderr
