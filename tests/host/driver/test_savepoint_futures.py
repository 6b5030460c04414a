"""Who waits for savepoints is answered once, and not before the job has ended if that was asked."""

import pytest

from headgate.base.checkpoints import Stop
from headgate.base.errors import SavepointFailed
from headgate.control.effects import SavepointDone
from headgate.host.driver.driver_run import SavepointFutures


def test_a_savepoint_is_answered_with_its_path() -> None:
    futures = SavepointFutures()
    first, second = futures.wanted("/one", Stop.NO), futures.wanted("/two", Stop.NO)
    for call in futures.done(SavepointDone("/two", 5)):
        call()
    assert second.result(0) == "/two" and not first.done()


def test_a_savepoint_that_fails_is_answered_with_the_reason() -> None:
    futures = SavepointFutures()
    future = futures.wanted("/one", Stop.DRAIN)
    for call in futures.done(SavepointDone("/one", None, "disk full")):
        call()
    with pytest.raises(SavepointFailed, match="savepoint /one: disk full"):
        future.result(0)


def test_who_wants_the_end_of_the_job_waits_for_it() -> None:
    futures = SavepointFutures()
    future = futures.wanted("/one", Stop.SUSPEND)
    assert futures.done(SavepointDone("/one", 5)) == []
    assert not future.done()
    for call in futures.attempt_ended(""):
        call()
    assert future.result(0) == "/one"
    assert futures.attempt_ended("") == [], "answered once"


def test_a_job_that_fails_while_it_ends_is_told_with_the_path() -> None:
    futures = SavepointFutures()
    future = futures.wanted("/one", Stop.SUSPEND)
    futures.done(SavepointDone("/one", 5))
    for call in futures.attempt_ended("boom"):
        call()
    with pytest.raises(SavepointFailed, match="/one: it is there, but the job has not ended.*boom"):
        future.result(0)


@pytest.mark.parametrize("problem", ["", "boom"])
def test_a_savepoint_that_is_stored_after_the_end_of_its_job_is_answered_then(
    problem: str,
) -> None:
    futures = SavepointFutures()
    future = futures.wanted("/one", Stop.SUSPEND)
    assert futures.attempt_ended(problem) == []
    futures.attempt_ended("of the attempt that followed")
    for call in futures.done(SavepointDone("/one", 5)):
        call()
    assert future.done() and (future.exception() is None) == (problem == "")


def test_what_nobody_asked_for_is_answered_to_nobody() -> None:
    assert SavepointFutures().done(SavepointDone("/one", 5)) == []
