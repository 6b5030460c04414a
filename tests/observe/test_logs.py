"""Log lines: UTC, level, logger, message, facts; or one JSON object a line."""

import json
import logging
import re
import sys

import pytest

from headgate.base.elements import Bundle
from headgate.base.errors import SettingsInvalid
from headgate.base.settings import LogFormat, LogLevel, LogSettings
from headgate.core.chain.context import OperatorContext
from headgate.core.operators.one_input import FlatMapOperator, MapOperator
from headgate.functions.context import TaskInfo
from headgate.observe.logs import (
    log_settings,
    set_up_driver_logs,
    set_up_logs,
    set_up_worker_logs,
)
from tests.api.kit import Kept


def test_a_line_has_time_level_logger_and_facts(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs("info")
    logging.getLogger("headgate.x").info("%s tasks", 3, extra={"job": "orders", "subtask": 1})
    line = capsys.readouterr().err
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO headgate\.x 3 tasks job=orders subtask=1\n",
        line,
    )


def test_facts_stand_in_the_first_line_of_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs("info")
    logging.getLogger("headgate.x").info("it failed\nTraceback: …", extra={"job": "orders"})
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("headgate.x it failed job=orders")
    assert second == "Traceback: …"


def test_json_has_a_line_for_each_record(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs("info", "json")
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.getLogger("headgate.x").exception("trouble", extra={"task": "2.0"})
    (line,) = capsys.readouterr().err.splitlines()
    fields = json.loads(line)
    assert (fields["level"], fields["message"], fields["task"]) == ("ERROR", "trouble", "2.0")
    assert "ValueError: two" in fields["traceback"]


def test_progress_is_logged_at_any_level(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs("error")
    logging.getLogger("headgate.progress").info("half way")
    logging.getLogger("headgate.x").warning("quiet")
    assert "half way" in (output := capsys.readouterr().err)
    assert "quiet" not in output


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


# In a task.

OWN = logging.getLogger("shop.prices")


def look_up(record: str) -> str:
    OWN.warning("no price of %s", record)
    return record


def run_in_a_task(operator: MapOperator | FlatMapOperator) -> None:
    task = TaskInfo("word count", "Map -> Sink: files out/", 1, 4, attempt=2)
    operator.set_up(Kept())
    operator.open(OperatorContext("look up", task, lambda: 0))
    operator.process(Bundle(["tea"], None), 0)


def test_lines_of_user_functions_say_where_they_come_from(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    set_up_worker_logs()
    run_in_a_task(MapOperator(look_up))
    assert capsys.readouterr().err.partition(" ")[2] == (
        'WARNING shop.prices no price of tea job="word count" operator="look up" '
        'task="Map -> Sink: files out/" subtask=1 attempt=2\n'
    )
    look_up("milk")  # in no task
    assert capsys.readouterr().err.endswith("Z WARNING shop.prices no price of milk\n")


def test_workers_log_as_the_driver_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setenv("HEADGATE_LOG_FORMAT", "json")
    monkeypatch.setenv("HEADGATE_LOG_LEVEL", "error")
    set_up_worker_logs()
    run_in_a_task(FlatMapOperator(lambda record: [look_up(record)]))
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("HEADGATE_LOG_LEVEL", "loud")  # no level: as by default
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    set_up_worker_logs()
    run_in_a_task(FlatMapOperator(lambda record: [look_up(record)]))
    fields = json.loads(capsys.readouterr().err)
    assert (fields["job"], fields["operator"], fields["subtask"]) == ("word count", "look up", 1)


def test_settings_come_before_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setenv("HEADGATE_LOG_LEVEL", "error")
    monkeypatch.setenv("HEADGATE_LOG_FORMAT", "json")
    settings = log_settings({"headgate.log.level": "info"})
    assert (settings.level, settings.format) == (LogLevel.INFO, LogFormat.JSON)
    with pytest.raises(SettingsInvalid, match=r"headgate\.log\.level: 'loud' is none of"):
        log_settings({"headgate.log.level": "loud"})
    set_up_worker_logs(settings)
    OWN.info("of the first job")
    set_up_worker_logs(LogSettings())  # Spark reuses its workers
    OWN.info("quiet")
    OWN.warning("of the second job")
    first, second = capsys.readouterr().err.splitlines()
    assert json.loads(first)["message"] == "of the first job"
    assert second.endswith("WARNING shop.prices of the second job")


def test_a_driver_logs_as_its_settings_ask_unless_the_program_has_its_own_logs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    set_up_driver_logs({})
    assert root.handlers == []
    set_up_driver_logs({"headgate.log.format": "json"})
    OWN.warning("so be it")
    assert json.loads(capsys.readouterr().err)["message"] == "so be it"
    own = logging.NullHandler()
    monkeypatch.setattr(root, "handlers", [own])
    set_up_driver_logs({"headgate.log.format": "json"})
    assert root.handlers == [own]


def test_a_message_that_cannot_be_formatted_is_a_line_all_the_same(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    set_up_logs("info", "json")
    OWN.warning("%d tasks", "many")
    assert "'%d tasks' (its arguments do not fit" in json.loads(capsys.readouterr().err)["message"]


def test_a_worker_where_somebody_has_set_up_logs_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = logging.NullHandler()
    monkeypatch.setattr(logging.getLogger(), "handlers", [own])
    set_up_worker_logs()
    assert logging.getLogger().handlers == [own]
