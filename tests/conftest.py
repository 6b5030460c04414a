"""How every test runs: Hypothesis profiles, the seeds of simulated runs, pools that must end full.

`pytest --hypothesis-profile thorough` looks harder; `--sim-seeds n` simulates more.
"""

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings

from headgate.core.buffers.global_pool import GlobalPool
from headgate.observe.logs import PROGRESS_LOGGER, StderrHandler
from tests.arena import assert_all_home, plain_pool

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

os.environ.setdefault("HEADGATE__REST__ENABLED", "false")  # tests of the page turn it on
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it

# Tests start many JVMs that live for seconds: without the second compiler and the parallel
# collector they take half the CPU time.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
OF_EXECUTORS = f"-Dspark.executor.defaultJavaOptions='{SHORT_LIVED}'"
os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{SHORT_LIVED} {OF_EXECUTORS}")
os.environ.setdefault("SPARK_LAUNCHER_OPTS", SHORT_LIVED)
os.environ.setdefault("SPARK_DAEMON_JAVA_OPTS", SHORT_LIVED)

settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,  # a red build is red for everyone, and again tomorrow
    max_examples=45,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.register_profile(
    "thorough",
    settings.get_profile("ci"),
    derandomize=False,
    max_examples=500,
    stateful_step_count=100,
)
settings.register_profile(
    "unshrunk",  # for mutants: whether a test fails, not the smallest example
    settings.get_profile("ci"),
    max_examples=60,
    phases=[Phase.explicit, Phase.generate],
)
settings.load_profile("ci")


APART = {
    f"tests/{name}.py"
    for name in (
        *("spark/test_cluster", "spark/test_demo", "spark/test_endings"),
        *("spark/test_on_cluster", "spark/test_run", "spark/test_why"),
        *("faults/test_lost_driver", "faults/test_lost_executor", "soak/test_soak"),
    )
}
"""Tests of Spark that never use the session of this process."""

ON_SPARK = (
    "tests/benchmarks/test_checkpoint.py",
    "tests/benchmarks/test_on_spark.py",
    "tests/spark/",
)
"""Tests that share the first session."""

FRAMES = tuple(
    f"tests/spark/{name}"
    for name in (
        "dataframe/",
        "streaming/",
        "test_data",
        "test_frame",
        "test_reading",
        "test_state",
    )
)
"""Tests of Spark that share a second session, so that neither process has too much to do."""

SET_UP_LOGGERS = (None, "py4j", "headgate", PROGRESS_LOGGER)
"""Loggers whose level `set_up_logs` changes; None is the root."""

SERVED = ("delta", "http", "iceberg", "kafka", "mqtt", "nats", "postgres", "redis", "s3", "sql")
"""Folders of connectors whose tests share a server."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sim-seeds", type=int, default=300, help="simulated runs (300)")
    parser.addoption(
        "--fault-seeds", type=int, default=0, help="runs per fault, mode and backend; 0: some (0)"
    )
    parser.addoption(
        "--why-rounds", type=int, default=0, help="runs of each planted job, alone; 0: together (0)"
    )
    parser.addoption(
        "--kafka",
        default="",
        metavar="HOST:PORT",
        help="test the Kafka sink against this broker; what needs control over it is left out",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "Scheduling":
    """One at a time to whoever is free, but all tests of Spark to two processes, and those first.

    Those that start a Spark of their own, in other processes, go to a third one; faults go to
    whichever is ready first. Tests of the page share a browser.
    """
    from xdist.scheduler import LoadScopeScheduling

    class OneSession(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            module = nodeid.split("::")[0]
            if module in APART:
                return "spark apart"
            if module == "tests/faults/test_faults.py":
                return "faults"
            if module == "tests/observe/web/test_page.py":
                return "browser"
            if module == "tests/benchmarks/test_postgres_tables.py":
                return "postgres"
            if module.startswith("tests/connectors/") and module.split("/")[2] in SERVED:
                return module.split("/")[2]
            if module.startswith("tests/spark/connect/"):
                return "connect"
            if module.startswith(FRAMES):
                return "frames"
            return "spark" if module.startswith(ON_SPARK) else nodeid

    return OneSession(config, log)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Of several processes each compiles a part of the test modules, and leaves it to the others.

    They would all compile all of them, at the same time: half a minute of CPU each, after a clone.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if not worker:
        return
    count, root = int(os.environ["PYTEST_XDIST_WORKER_COUNT"]), session.config.rootpath
    paths = [path for word in session.config.args for path in (root / word).rglob("test_*.py")]
    for path in sorted(paths)[int(worker.removeprefix("gw")) :: count]:
        name = ".".join(path.relative_to(root).with_suffix("").parts)
        with suppress(Exception, pytest.skip.Exception):  # whoever collects it tells why
            import_module(name)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The marker alone is for tests that `make test` can find without collecting everything."""
    for item in items:
        if item.get_closest_marker("alone") and not item.path.match("tests/spark/test_why.py"):
            raise pytest.UsageError(f"the Makefile does not look for tests alone in {item.path}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Nine of ten simulated runs are those of tests that ask for `job_seed`; the tenth is that of
    one that asks for `recovery_seed`: a job that fails and goes on takes longer."""
    seeds = metafunc.config.getoption("--sim-seeds")
    recoveries = (seeds + 9) // 10
    if "job_seed" in metafunc.fixturenames:
        metafunc.parametrize("job_seed", range(seeds - recoveries))
    if "recovery_seed" in metafunc.fixturenames:
        metafunc.parametrize("recovery_seed", range(recoveries))


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    """A job or a command that sets up the logs of this process does so until the test's end."""
    levels = {name: logging.getLogger(name).level for name in SET_UP_LOGGERS}
    yield
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    root = logging.getLogger()
    for handler in [left for left in root.handlers if isinstance(left, StderrHandler)]:
        root.removeHandler(handler)


@pytest.fixture
def make_pool() -> Iterator[Callable[..., GlobalPool]]:
    """`make_pool(segments, segment_bytes=64)`: a global pool on plain memory.

    After the test the local pools that are left are destroyed, and every segment must be back.
    """
    made: list[GlobalPool] = []

    def make(segments: int, segment_bytes: int = 64) -> GlobalPool:
        made.append(plain_pool(segments, segment_bytes))
        return made[-1]

    yield make
    for pool in made:
        assert_all_home(pool)
