"""Log lines: UTC, level, logger, message, facts; or one JSON object a line."""

import json
import logging
import re
import sys
from collections.abc import Iterator

import pytest

from headgate.observe.logs import StderrHandler, set_up_logs


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    levels = {name: logging.getLogger(name).level for name in ("headgate", "headgate.progress")}
    yield
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    root = logging.getLogger()
    for handler in [one for one in root.handlers if isinstance(one, StderrHandler)]:
        root.removeHandler(handler)


def test_a_line_has_time_level_logger_and_facts(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs("info")
    logging.getLogger("headgate.x").info("%s tasks", 3, extra={"job": "orders", "subtask": 1})
    line = capsys.readouterr().err
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO headgate\.x 3 tasks job=orders subtask=1\n",
        line,
    )


def test_json_has_a_line_for_each_record(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs("info", "json")
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.getLogger("headgate.x").exception("trouble", extra={"task": "2.0"})
    (line,) = capsys.readouterr().err.splitlines()
    told = json.loads(line)
    assert (told["level"], told["message"], told["task"]) == ("ERROR", "trouble", "2.0")
    assert "ValueError: two" in told["traceback"]


def test_progress_is_logged_at_any_level(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs("error")
    logging.getLogger("headgate.progress").info("half way")
    logging.getLogger("headgate.x").warning("quiet")
    assert "half way" in (told := capsys.readouterr().err)
    assert "quiet" not in told


def test_setting_up_twice_says_everything_once(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs("info")
    set_up_logs("info", "json")
    logging.getLogger("headgate.x").info("once")
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_handler_writes_to_what_is_standard_error_now(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up_logs("info")
    monkeypatch.setattr(sys, "stderr", sys.stdout)
    logging.getLogger("headgate.x").info("there")
    assert "there" in capsys.readouterr().out
