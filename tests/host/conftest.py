"""Exchanges that must give everything back, and the watch over threads, sockets and files."""

import gc
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate.base.settings import ExchangeSettings, TransportKind
from headgate.host.net.exchange import Exchange
from tests.host.leaks import descriptors, left_open, own_threads
from tests.host.rig import SECRET, all_home, eventually, quick

MakeExchange = Callable[..., Exchange]


def close_spark_ports() -> None:
    """Tests on Spark, which ran in this process before, leave the driver's ports open.

    They also leave DataFrames that live, and with them a thread that looks after their jobs.
    """
    frames = sys.modules.get("headgate.spark.dataframe.actions")
    if frames is not None and frames.lazy_jobs._watched:
        jobs, frames.lazy_jobs._jobs = frames.lazy_jobs._jobs, []
        for lazy in jobs:
            lazy.job.close()
        eventually(lambda: not frames.lazy_jobs._watched, "the end of lazy jobs", 30)
    driver = sys.modules.get("headgate.spark.driver_services")
    if driver is not None:
        driver.close_driver_services()


@pytest.fixture(autouse=True)
def no_leaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """After every test no thread, descriptor or folder is left that was not there before."""
    folder = tmp_path / "temp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    # What is there already need not be looked at again: after thousands of tests that is slow.
    monkeypatch.setattr(gc, "unfreeze", lambda: None)
    close_spark_ports()
    gc.freeze()
    before = descriptors()
    assert not own_threads(), "a thread of an earlier test lives"
    yield
    gc.collect()
    eventually(lambda: not own_threads(), f"the end of threads {own_threads()}", 5)
    assert left_open(before) == []
    assert not list(folder.glob("headgate-*")), "a folder is left behind"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """For the lines that jobs write."""
    made = tmp_path / "lines"
    made.mkdir()
    return made


@pytest.fixture
def make_exchange(no_leaks: None) -> Iterator[MakeExchange]:
    """`make_exchange(settings, segments=64)`: an exchange that is closed after the test.

    Before it is closed every segment must have come back to its pool.
    """
    made: list[Exchange] = []

    def make(
        settings: ExchangeSettings | None = None,
        *,
        secret: bytes = SECRET,
        segments: int | None = 100,
        local_only: bool = False,
    ) -> Exchange:
        made.append(Exchange(settings or quick(), secret, segments=segments, local_only=local_only))
        return made[-1]

    yield make
    try:
        for exchange in made:
            if not exchange.closed:
                eventually(lambda exchange=exchange: all_home(exchange), "all segments home", 5)  # type: ignore[misc]
    finally:
        for exchange in made:
            exchange.close()
    for exchange in made:
        pool = exchange.environment.pool
        assert len(pool.free) == pool.total, f"{len(pool.free)} of {pool.total} back at the end"


@pytest.fixture(params=list(TransportKind)[1:], ids=lambda kind: kind.value)
def transport(request: pytest.FixtureRequest) -> TransportKind:
    """The test runs over epoll and over poll."""
    kind: TransportKind = request.param
    return kind


@pytest.fixture
def pair(make_exchange: MakeExchange) -> tuple[Exchange, Exchange]:
    """Two exchanges with the same quick settings."""
    return make_exchange(), make_exchange()
