"""A tiny barrier job that tells what the workers are like; `headgate doctor` runs it.

The function is nested so that it travels by value: it can then report a worker that has no
Headgate, instead of failing to arrive there. Its tasks also connect to each other, in a ring.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.base.errors import SessionFailed
from headgate.spark.cluster import Slots, SparkCluster, cluster_of
from headgate.spark.failures import python_problem
from headgate.spark.session import active_session, await_slots, find_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_TASKS: Final = 16
SETTLE_S: Final = 2.0
CONNECT_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """One Python worker; a trouble is what it could not do."""

    host: str
    python: str
    headgate: str
    trouble: str


@dataclass(frozen=True, slots=True)
class SparkReport:
    """A session, and the workers of a barrier stage in it."""

    version: str
    master: str
    slots: Slots
    dynamic_allocation: bool
    start_s: float
    job_s: float
    workers: tuple[WorkerReport, ...]


def probe_spark(settings: Mapping[str, str] | None = None, wait_s: float = 30.0) -> SparkReport:
    """Start a session (or take the active one) and run the job; a session made here is stopped."""
    was_active = active_session() is not None
    began = time.monotonic()
    session = find_session(settings)
    try:
        cluster = cluster_of(session)
        is_dynamic = cluster.is_dynamic
        if is_dynamic:  # there may be no executors before a job asks for them
            cluster.allocate(1)
        found = _settled(session, await_slots(session, 1, wait_s))
        started = time.monotonic()
        # A local session of ours has many more slots than cores.
        count = min(found.free, MOST_TASKS, cluster.default_parallelism)
        with cluster.barriers_allowed():
            workers = _ask_workers(cluster, count)
        return SparkReport(
            version=str(session.version),
            master=cluster.master,
            slots=found,
            dynamic_allocation=is_dynamic,
            start_s=round(started - began, 1),
            job_s=round(time.monotonic() - started, 1),
            workers=workers,
        )
    finally:
        if not was_active:
            with suppress(Exception):  # a signal may have cut the way to Java, which ends with us
                session.stop()


def _settled(session: "SparkSession", found: Slots) -> Slots:
    """Executors of a cluster come one by one; wait until no more of them come."""
    if cluster_of(session).is_local:
        return found
    while (more := await_slots(session, found.total + 1, SETTLE_S)).total > found.total:
        found = more
    return found


def _ask_workers(cluster: SparkCluster, count: int) -> tuple[WorkerReport, ...]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if not count:
        return ()
    try:
        seen = cluster.run_barrier(_worker_function(CONNECT_TIMEOUT_S), count, "headgate doctor")
    except (Py4JError, PySparkException) as error:
        raise SessionFailed(_why(str(error))) from error
    return tuple(WorkerReport(*facts) for facts in seen)


def _why(text: str) -> str:
    if problem := python_problem(text):
        return f"{problem}; set PYSPARK_PYTHON to a Python of this version that every worker has"
    # The last line of the worker's traceback, rather than the many of the JVM around it.
    errors = re.findall(r"^(?!org\.|java\.)[\w.]*(?:Error|Exception)\b.*$", text, re.MULTILINE)
    lines = errors[:1] or text.strip().splitlines() or ["no reason given"]
    return f"a barrier job failed: {lines[0]}"


def _worker_function(timeout_s: float) -> Callable[[Iterable[Any]], Iterator[tuple[str, ...]]]:
    def look(_: Iterable[Any]) -> Iterator[tuple[str, ...]]:
        import platform
        import socket

        from pyspark import BarrierTaskContext

        task: Any = BarrierTaskContext.get()
        index = task.partitionId()
        host = task.getTaskInfos()[index].address.rpartition(":")[0] or "127.0.0.1"
        trouble = ""
        try:
            from headgate import __version__ as headgate
        except ImportError as error:
            headgate, trouble = "", f"cannot import headgate ({error})"
        with socket.create_server((host if host.startswith("127.") else "", 0)) as server:
            server.settimeout(timeout_s)
            places = task.allGather(f"{host} {server.getsockname()[1]}")
            name, port = places[(index + 1) % len(places)].split()
            try:
                socket.create_connection((name, int(port)), timeout_s).close()
                server.accept()[0].close()
            except OSError as error:
                trouble = trouble or f"no connection to or from {name}:{port} ({error})"
        return iter([(host, platform.python_version(), headgate, trouble)])

    return look
