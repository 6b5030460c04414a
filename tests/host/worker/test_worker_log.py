"""Lines of a worker on their way to the driver: which, how many, and what they say."""

import logging
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from headgate.base.messages import ControlTimes
from headgate.base.settings import LogSettings, ShipLevel
from headgate.host.net.contact import DriverContact
from headgate.host.shipping.log_lines import MOST_CHARS
from headgate.host.worker import worker_log
from headgate.host.worker.worker_log import WorkerLog

LOG = logging.getLogger("shop.prices")
CONTACT = DriverContact(
    ("127.0.0.1", 1), "7f00", b"s" * 32, times=ControlTimes(metrics_ms=3_600_000)
)


@pytest.fixture
def lines() -> Iterator[WorkerLog]:
    with WorkerLog(CONTACT, 3, is_alone=True) as opened:
        yield opened


def test_warnings_and_worse_are_sent_with_what_is_known(lines: WorkerLog) -> None:
    LOG.info("quiet")
    LOG.warning("no price of %s", "tea")
    lines.run_began("orders", 2)
    try:
        raise ValueError("gone")
    except ValueError:
        LOG.exception("trouble")
    first, second = lines.take()
    assert (first.level, first.logger, first.message) == (
        "WARNING",
        "shop.prices",
        "no price of tea",
    )
    assert (first.attempt, first.task, first.subtask, first.traceback) == (-1, "", -1, "")
    assert (second.level, second.message, second.attempt) == ("ERROR", "trouble", 2)
    assert second.traceback.endswith("ValueError: gone")
    assert first.host == second.host
    assert first.host.rpartition(":")[2].isdigit()
    assert lines.take() == []


def test_threads_that_know_no_task_know_the_attempt(lines: WorkerLog) -> None:
    lines.run_began("orders", 2)
    thread = threading.Thread(target=LOG.warning, args=("from a thread of the user's own",))
    thread.start()
    thread.join()
    (line,) = lines.take()
    assert (line.message, line.attempt) == ("from a thread of the user's own", 2)


def test_the_level_is_a_setting() -> None:
    errors = replace(CONTACT, logs=LogSettings(ship_level=ShipLevel.ERROR))
    with WorkerLog(errors, 0, is_alone=True) as lines:
        LOG.warning("left")
        LOG.error("sent")
        assert [line.message for line in lines.take()] == ["sent"]
    with WorkerLog(
        replace(CONTACT, logs=LogSettings(ship_level=ShipLevel.OFF)), 0, is_alone=True
    ) as lines:
        LOG.error("left")
        assert lines.take() == []


def test_a_storm_of_lines_is_cut_and_counted(lines: WorkerLog) -> None:
    for number in range(worker_log.MOST_LINES + 1234):
        LOG.warning("line %d", number)
    taken = lines.take()
    assert [line.message for line in taken[:2]] == ["line 0", "line 1"]
    assert len(taken) == worker_log.MOST_LINES + 1
    assert taken[-1].message == "… 1,234 lines were left out here"
    LOG.warning("within the same interval")  # the budget is one of time, not of sending
    (last,) = lines.take()
    assert last.message == "… 1 lines were left out here"


def test_the_budget_is_there_again_in_the_next_interval() -> None:
    quick = replace(CONTACT, times=ControlTimes(metrics_ms=0))
    with WorkerLog(quick, 0, is_alone=True) as lines:
        for number in range(3 * worker_log.MOST_LINES):
            LOG.warning("line %d", number)
            if number % worker_log.MOST_LINES == 0:
                lines.take()
        LOG.warning("more than is kept until it is sent")
        assert len(lines.take()) <= worker_log.MOST_LINES + 1


def test_long_lines_are_cut_and_large_ones_end_the_budget(lines: WorkerLog) -> None:
    LOG.warning("x" * (MOST_CHARS + 5))
    (line,) = lines.take()
    assert line.message == "x" * MOST_CHARS + "… (5 more characters)"
    for _ in range(worker_log.MOST_LINES):
        LOG.warning("x" * MOST_CHARS)
    assert sum(len(line.message) for line in lines.take()) < worker_log.MOST_BYTES + 2 * MOST_CHARS


class Awkward:
    def __str__(self) -> str:
        raise RuntimeError("not today")


def test_whatever_is_logged_becomes_a_line(lines: WorkerLog) -> None:
    for message, arguments in (
        ("%d tasks", ("many",)),
        ("%s", (Awkward(),)),
        ("a name with half a character: \udcff", ()),
    ):
        lines.handle(logging.makeLogRecord({"msg": message, "args": arguments}))
    texts = [line.message for line in lines.take()]
    assert "TypeError" in texts[0]
    assert "not today" in texts[1]
    assert texts[2] == "a name with half a character: ?"


def test_a_process_of_somebody_else_is_left_alone() -> None:
    before = list(logging.getLogger().handlers)
    with WorkerLog(CONTACT, 0, is_alone=False) as lines:
        assert logging.getLogger().handlers == before
        LOG.warning("not for the driver")
        assert lines.take() == []


def test_nothing_stays_after_the_end() -> None:
    with WorkerLog(CONTACT, 3, is_alone=True) as lines:
        assert lines in logging.getLogger().handlers
    assert lines not in logging.getLogger().handlers


def test_without_other_handlers_lines_are_still_seen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with WorkerLog(CONTACT, 0, is_alone=True):
        LOG.warning("seen")
        LOG.info("quiet")
    assert capsys.readouterr().err == "seen\n"
