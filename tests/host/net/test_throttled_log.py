"""The log that strangers cannot fill."""

import logging
from collections.abc import Callable

import pytest

from headgate.host.net.throttled_log import LINES, ThrottledLog

log = logging.getLogger(__name__)


def test_lines_above_the_limit_are_counted_for_each_level_and_told_at_the_end_of_the_period(
    caplog: pytest.LogCaptureFixture,
) -> None:
    due: list[Callable[[], None]] = []
    rare = ThrottledLog(log, lambda pause_ms, call: due.append(call))
    with caplog.at_level(logging.INFO, log.name):
        for number in range(LINES + 3):
            rare.log(logging.WARNING, f"stranger {number}")
        rare.log(logging.INFO, "a peer went")
        assert len(due) == 1
        assert len(caplog.records) == LINES + 1
        due.pop()()
        assert caplog.records[-1].getMessage() == (
            f"3 more such lines in 10 s, the last: stranger {LINES + 2}"
        )
        assert caplog.records[-1].levelno == logging.WARNING
        rare.log(logging.WARNING, "the next period")
        assert caplog.records[-1].getMessage() == "the next period"
        due.pop()()
        assert caplog.records[-1].getMessage() == "the next period"  # there was nothing to tell


def test_lines_that_nobody_wants_are_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    due: list[Callable[[], None]] = []
    rare = ThrottledLog(log, lambda pause_ms, call: due.append(call))
    with caplog.at_level(logging.ERROR, log.name):
        rare.log(logging.INFO, "%s is no format here")
    assert due == [] and caplog.records == []
