"""The thread of an enumerator: what it reports, whatever the enumerator does."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from headgate.base.checkpoints import SourceState, SplitData
from headgate.base.messages import Failure
from headgate.control.split_assignment import PlannedSource
from headgate.functions.source import Position, SplitEnumerator
from headgate.host.driver.discovery import Discovery
from tests.host.rig import eventually


class Steps(SplitEnumerator):
    """Does one thing after the other; then it finds nothing."""

    def __init__(self, *steps: Any, interval_ms: Any = 1) -> None:
        self.steps = list(steps)
        self.interval_ms = interval_ms
        self.at = 0
        self.threads: set[int] = set()
        self.closed = threading.Event()
        self.fails_to_tell = False

    def discover(self) -> Sequence[object]:
        self.threads.add(threading.get_ident())
        step = self.steps.pop(0) if self.steps else []
        if isinstance(step, BaseException):
            raise step
        self.at += len(step)
        return step  # type: ignore[no-any-return]

    def position(self) -> Position:
        if self.fails_to_tell:
            self.fails_to_tell = False
            raise ValueError("where was I")
        return self.at

    def close(self) -> None:
        self.threads.add(threading.get_ident())
        self.closed.set()


class Reports:
    """See ``DiscoveryListener``."""

    def __init__(self) -> None:
        self.found: list[tuple[int, bool]] = []
        self.positions: list[bytes] = []
        self.failures: list[Failure] = []

    def splits_discovered(
        self, run: str, uid: str, position: bytes, splits: Sequence[SplitData], is_last: bool
    ) -> None:
        assert (run, uid) == ("run", "uid")
        self.found.append((len(splits), is_last))
        self.positions.append(position)

    def discovery_failed(self, run: str, failure: Failure) -> None:
        self.failures.append(failure)


Start = Callable[..., Reports]


@pytest.fixture
def start(no_leaks: None) -> Iterator[Start]:
    started: list[Discovery] = []

    def begin(enumerator: Steps, restored: SourceState | None = None) -> Reports:
        reports = Reports()
        source = PlannedSource("uid", "shelf", {}, True, lambda position: enumerator, restored)
        started.append(Discovery(reports, dict))
        started[-1].start("run", source)
        return reports

    yield begin
    for discovery in started:
        discovery.end()
        discovery.end()


def test_only_what_is_new_is_reported(start: Start) -> None:
    enumerator = Steps(["a", "b"], [], ["c"])
    reports = start(enumerator)
    eventually(lambda: not enumerator.steps, "all steps")
    eventually(lambda: len(reports.found) == 2, "two reports")
    assert reports.found == [(2, False), (1, False)]


def test_an_enumerator_without_an_interval_looks_once_and_is_closed(start: Start) -> None:
    enumerator = Steps(["a"], interval_ms=None)
    reports = start(enumerator)
    assert enumerator.closed.wait(20)
    assert reports.found == [(1, True)]
    assert len(enumerator.threads) == 1 and threading.get_ident() not in enumerator.threads


def test_what_was_returned_is_not_lost_if_its_position_cannot_be_told(start: Start) -> None:
    enumerator = Steps(["a"], ["b"], ["c"])
    reports = start(enumerator)
    eventually(lambda: bool(reports.found), "a report")
    enumerator.fails_to_tell = True
    enumerator.steps += [["d"]]
    eventually(lambda: sum(count for count, _ in reports.found) == 4, "all of them")


@pytest.mark.parametrize("interval", ["soon", object()])
def test_an_interval_that_is_no_number_fails_the_job(start: Start, interval: object) -> None:
    enumerator = Steps(["a"], interval_ms=interval)
    reports = start(enumerator)
    assert enumerator.closed.wait(20)
    assert "shelf" in reports.failures[0].message


@pytest.mark.parametrize("interval", [float("inf"), 10**30, float("nan"), -5])
def test_an_interval_may_be_any_number(start: Start, interval: float) -> None:
    reports = start(Steps(["a"], interval_ms=interval))
    eventually(lambda: reports.found == [(1, False)], "a report")
    assert not reports.failures


def test_one_that_fails_again_and_again_is_warned_of_once(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    enumerator = Steps(["a"], *[OSError("gone")] * 5, ["b"])
    reports = start(enumerator)
    eventually(lambda: len(reports.found) == 2, "it goes on")
    assert caplog.text.count("cannot look for new splits") == 1
    assert not reports.failures


def test_one_that_cannot_be_closed_is_warned_of(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    class Sticky(Steps):
        def close(self) -> None:
            super().close()
            raise OSError("it sticks")

    enumerator = Sticky(["a"], interval_ms=None)
    start(enumerator)
    assert enumerator.closed.wait(20)
    eventually(lambda: "it sticks" in caplog.text, "a warning")


def test_a_restored_one_that_fails_at_once_lets_the_job_go_on(start: Start) -> None:
    restored = SourceState("uid", "shelf", b"position")
    reports = start(Steps(OSError("gone")), restored)
    eventually(lambda: reports.found == [(0, False)], "a report")
    assert reports.positions == [b"position"] and not reports.failures


def test_one_that_was_restored_before_it_had_looked_fails_the_job(start: Start) -> None:
    enumerator = Steps(OSError("gone"))
    reports = start(enumerator, SourceState("uid", "shelf"))
    assert enumerator.closed.wait(20)
    assert "gone" in reports.failures[0].message


def test_after_the_end_nothing_is_reported(no_leaks: None) -> None:
    looks, go_on = threading.Event(), threading.Event()

    class Hangs(Steps):
        def discover(self) -> Sequence[object]:
            looks.set()
            assert go_on.wait(20)
            return ["late"]

    enumerator, reports = Hangs(), Reports()
    source = PlannedSource("uid", "shelf", {}, True, lambda position: enumerator)
    discovery = Discovery(reports, dict)
    discovery.start("run", source)
    assert looks.wait(20)
    discovery.end()
    go_on.set()
    assert enumerator.closed.wait(20)
    assert not reports.found and not reports.failures
