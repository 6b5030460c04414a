"""The log of a job in the driver: its own lines, those of workers, how many are kept."""

import logging
import threading
from collections.abc import Iterator

import pytest
from msgspec import structs

from headgate.base.job_records import LogLine
from headgate.core.chain.log_facts import logged_with
from headgate.host.driver import job_log
from headgate.host.driver.job_log import JobLog

LOG = logging.getLogger("headgate.host.driver.driver_run")
OF_WORKER = LogLine(
    0, 1_700_000_000_123, "WARNING", "shop.prices", "no price", "Map", 1, 2, "up", "a:7"
)


@pytest.fixture(autouse=True)
def driver_lines(monkeypatch: pytest.MonkeyPatch) -> job_log.DriverLines:
    """The job of a DataFrame that another test has made may keep the usual one installed."""
    lines = job_log.DriverLines()
    monkeypatch.setattr(job_log, "_driver_lines", lines)
    return lines


@pytest.fixture
def kept() -> Iterator[JobLog]:
    log = JobLog("orders", "7f00")
    log.open()
    yield log
    log.close()


def test_lines_about_the_job_are_kept_and_no_others(kept: JobLog) -> None:
    LOG.warning("it restarts", extra={"job_id": "7f00", "attempt": 3})
    LOG.warning("of another one", extra={"job_id": "8e11"})
    LOG.warning("of nobody")
    logging.getLogger("shop").warning("of the user's", extra={"job_id": "7f00"})
    with logged_with({"job_id": "7f00"}):
        LOG.warning("within")
    first, second = kept.lines()
    assert (first.number, first.message, first.attempt, first.host) == (
        1,
        "it restarts",
        3,
        "driver",
    )
    assert (second.number, second.message) == (2, "within")


def test_one_can_ask_for_what_is_new(kept: JobLog) -> None:
    kept.received([OF_WORKER] * 5)
    assert [line.number for line in kept.lines(after=2)] == [3, 4, 5]
    assert [line.number for line in kept.lines(after=2, limit=2)] == [3, 4]
    assert kept.lines(after=5) == []
    assert kept.lines(limit=0) == []


def test_old_lines_make_room(kept: JobLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_log, "MOST_LINES", 10)
    kept.received([OF_WORKER] * 25)
    assert [line.number for line in kept.lines()] == list(range(16, 26))
    monkeypatch.setattr(job_log, "MOST_BYTES", 1000)
    kept.received([OF_WORKER])
    assert [line.number for line in kept.lines()] == [23, 24, 25, 26]


def test_lines_stay_after_the_end_and_none_are_added(
    kept: JobLog, driver_lines: job_log.DriverLines
) -> None:
    LOG.warning("before", extra={"job_id": "7f00"})
    kept.close()
    LOG.warning("after", extra={"job_id": "7f00"})
    assert [line.message for line in kept.lines()] == ["before"]
    assert driver_lines not in logging.getLogger("headgate").handlers


def test_on_a_cluster_lines_of_workers_are_in_the_log_of_the_driver(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = JobLog("orders", "7f00", forwards=True)
    log.open()
    own = LogLine(0, 5, "ERROR", "headgate.host.worker.x", "broken", traceback="ValueError: gone")
    log.received([OF_WORKER, own, LogLine(0, 5, "strange", "x", "of no level")])
    log.close()
    first, second = caplog.records
    assert (first.name, first.levelname, first.getMessage()) == (
        "shop.prices",
        "WARNING",
        "no price",
    )
    facts = {key: first.__dict__[key] for key in ("job", "task", "subtask", "attempt", "host")}
    assert facts == {"job": "orders", "task": "Map", "subtask": 1, "attempt": 2, "host": "a:7"}
    assert first.created == OF_WORKER.at_ms / 1000
    assert second.exc_text == "ValueError: gone"
    assert len(log.lines()) == 3  # once each


def test_a_program_without_logging_sees_what_it_would_have_seen(
    kept: JobLog, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    LOG.warning("seen", extra={"job_id": "7f00"})
    assert capsys.readouterr().err == "seen\n"


def test_a_flood_of_lines_of_all_workers_is_cut_and_counted(
    kept: JobLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_log, "MOST_RECEIVED", 10)
    kept._second_ends = float("inf")  # the second does not end during the test
    for _ in range(3):
        kept.received([OF_WORKER] * 8)
    assert len(kept.lines()) == 10
    kept._second_ends = 0.0
    kept.received([OF_WORKER] * 2)
    kept._second_ends = float("inf")
    after = [(line.number, line.message) for line in kept.lines(after=10)]
    assert after[0] == (11, "… 14 lines of workers were left out here")
    assert len(after) == 3
    kept.received([OF_WORKER] * 9)
    kept.close()
    assert kept.lines()[-1].message == "… 1 lines of workers were left out here"


class SlowHandler(logging.Handler):
    """Of a program whose log goes over the network, which is down."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.network_is_back = threading.Event(), threading.Event()
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.entered.set()
        assert self.network_is_back.wait(30)
        self.seen.append(record.getMessage())


def test_a_slow_handler_of_the_program_delays_no_message_of_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_log, "MOST_WAITING", 3)
    slow, logger = SlowHandler(), logging.getLogger("shop.prices")
    logger.addHandler(slow)
    log = JobLog("orders", "7f00", forwards=True)
    try:
        log.received([OF_WORKER])
        assert slow.entered.wait(30)
        for _ in range(5):
            log.received([OF_WORKER])
        assert len(log.lines()) == 6 and slow.seen == []
        slow.network_is_back.set()
        log.close()
        assert slow.seen == ["no price"] * 4
    finally:
        slow.network_is_back.set()
        logger.removeHandler(slow)


class Talkative(str):
    """Logs while a line is being kept, as a destructor may that Python calls at any moment."""

    __slots__ = ()

    def __len__(self) -> int:
        LOG.warning("in the middle", extra={"job_id": "7f00"})
        return 0


def test_a_line_in_the_middle_of_another_stops_nobody(kept: JobLog) -> None:
    line = structs.replace(OF_WORKER, message=Talkative("no price"))
    adding = threading.Thread(target=kept.add, args=(line,), daemon=True)
    adding.start()
    adding.join(30)
    assert not adding.is_alive()
    assert [line.number for line in kept.lines()] == [1, 2]
