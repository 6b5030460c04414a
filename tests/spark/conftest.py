"""Spark for tests: one local session for all of them, and a real cluster of three processes.

All tests of this folder run in one test process (see the scheduler in `tests/conftest.py`), so that
only one session is started.
"""

import sys
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from headgate.spark.job import end_jobs
from headgate.spark.session import find_session
from tests.spark.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.broadcast.compress": "false",  # tests look into what Spark serves
    # A job that does not fit fails at once, instead of after ten minutes.
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "1",
}


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """A session with 4 slots. It is shared: leave nothing behind, and do not stop it."""
    _need_pyspark()
    session = find_session(SETTINGS, cores=4)
    yield session
    session.stop()


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spark: "SparkSession") -> ModuleType:
    """The module that a page's code runs in: ``__main__``, as for a script; and a folder."""
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    monkeypatch.chdir(tmp_path)
    return module


@pytest.fixture(scope="session")
def standalone_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers with 2 cores each, on the loopback address.

    A driver for it needs a process of its own, because the session of this one is local.
    """
    _need_pyspark()
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails may leave a job; the tests after it need its slots."""
    report = yield
    if report.failed:
        end_jobs("its test has failed")
    return report


def _need_pyspark() -> None:
    if find_spec("pyspark") is None:
        pytest.skip("PySpark is not installed")
