"""How a Spark session runs a job: the one place that knows which kind of session it is.

``cluster_of`` gives the cluster of a session. A classic session has the SparkContext of this
process, which tells and does everything; the other kind is in ``connect``. Law: nobody outside of
these two asks a session for its SparkContext, for Java's half of anything, or for its kind.
"""

import re
import socket
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.base.errors import SessionFailed
from headgate.spark.executors import (
    ExcludedExecutor,
    QueryStage,
    adopted_profile,
    allocate,
    barriers_allowed,
    busy_slots,
    excluded_executors,
    is_dynamic,
    query_stages,
    running_tasks,
    total_slots,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Slots:
    """Tasks that Spark can run at the same time, and those that it runs now."""

    total: int
    busy: int
    excluded: tuple[ExcludedExecutor, ...] = ()
    """Executors that are there, and that Spark gives no tasks for a while; not among the total."""
    tells_busy: bool = True
    """False: others may run tasks, which nobody tells."""

    @property
    def free(self) -> int:
        return max(0, self.total - self.busy)


class SparkCluster(ABC):
    """What a job needs of the session that it runs in; methods are thread-safe."""

    @property
    @abstractmethod
    def master(self) -> str:
        """Where Spark runs, as in ``spark.master``."""

    @property
    @abstractmethod
    def is_local(self) -> bool:
        """Whether all workers run on this machine, and find the files and modules of this one."""

    @property
    @abstractmethod
    def is_own(self) -> bool:
        """Whether they also belong to this process: its user's, with its standard error."""

    @property
    @abstractmethod
    def is_driven_here(self) -> bool:
        """Whether Spark's driver is on this machine, and finds the files of this process."""

    @property
    @abstractmethod
    def application_id(self) -> str:
        """The id of the application, or of the session where several users share an application."""

    @property
    def open_channel(self) -> str:
        """The address of a server whose channel from here is not encrypted; empty: there is none.

        Functions and their secrets travel through it.
        """
        return ""

    @property
    def python(self) -> str:
        """The Python of the workers; nothing: Spark does not say."""
        return ""

    @property
    @abstractmethod
    def default_parallelism(self) -> int:
        """The number of partitions that Spark makes if nobody says how many."""

    @property
    @abstractmethod
    def is_dynamic(self) -> bool:
        """Whether Spark adds and removes executors of a cluster while stages run."""

    @property
    def java(self) -> Any:
        """Java's packages, as Py4J shows them; None: no Java belongs to this process."""
        return None

    @abstractmethod
    def configuration(self) -> Mapping[str, str]:
        """What was set, without Spark's defaults."""

    @abstractmethod
    def is_stopped(self) -> bool:
        """Whether it can run nothing any more."""

    def absence(self) -> str:
        """Why nothing that runs there can go on, in words; nothing: Spark is there."""
        return ""

    @abstractmethod
    def give_up(self) -> None:
        """A job has failed: let go of a Spark that is gone. Never raises."""

    @abstractmethod
    def slots(self, profile: object | None = None) -> Slots:
        """How many barrier tasks fit into the executors as they are now, and how many run.

        ``profile``: of these tasks, as ``adopted_profile`` has returned it. Raises SessionFailed if
        Spark has stopped.
        """

    @abstractmethod
    def allocate(self, count: int, is_over: Callable[[], bool] = lambda: False) -> None:
        """Let Spark start executors until so many slots are free, or no more of them come.

        Only where it allocates them dynamically. Raises SessionFailed if it cannot be asked.
        """

    def barriers_allowed(self) -> AbstractContextManager[None]:
        """Within it, Spark creates barrier stages, also if it allocates executors dynamically."""
        return nullcontext()

    @abstractmethod
    def adopted_profile(self, profile: object) -> object | None:
        """A resource profile of a job, ready for its stages; raises PlanInvalid.

        None: this cluster has no resources, and its tasks go without.
        """

    def running_tasks(self, group: str) -> int:
        """How many tasks of a job group run now; 0 where Spark does not say. Raises any error."""
        return 0

    @abstractmethod
    def query_stages(self) -> list[QueryStage]:
        """Stages of queries that run or wait for slots. Raises any error of the request."""

    @abstractmethod
    def driver_hosts(self) -> tuple[str, str]:
        """Where this process listens for workers, and the address that they are told."""

    @abstractmethod
    def thread(
        self, target: Callable[..., None], name: str, args: tuple[Any, ...] = ()
    ) -> threading.Thread:
        """A thread that takes this one's job group, tags and pool over to Spark; not started."""

    @abstractmethod
    def begin_group(self, group: str, description: str) -> None:
        """Spark jobs that this thread starts from now on belong to the group."""

    @abstractmethod
    def cancel_group(self, group: str) -> None:
        """End its Spark jobs, and their tasks. Raises any error of the request.

        SessionFailed: Spark is not there.
        """

    @abstractmethod
    def cancel_stage(self, stage: str, reason: str) -> None:
        """End one stage, as ``QueryStage`` names it. Raises any error of the request."""

    @abstractmethod
    def run_barrier(
        self,
        function: Callable[[Iterable[Any]], Iterator[Any]],
        count: int,
        name: str,
        profile: object | None = None,
    ) -> list[Any]:
        """Run ``count`` tasks side by side, as a Spark job of this name; returns at its end.

        The function is called once in each; what it yields is returned, as it comes.
        """

    def hides_property(self, key: str) -> bool:
        """Whether this local property reaches tasks, and stays out of Spark's event log."""
        return False

    def set_property(self, key: str, text: str) -> None:
        """A local property of the Spark jobs that this thread starts from now on."""
        raise AssertionError(f"this session has no local properties, and {key} is none")

    @abstractmethod
    def add_file(self, path: str) -> None:
        """For all workers: ``SparkFiles`` has it there by its name."""

    @abstractmethod
    def add_python_file(self, path: str) -> None:
        """For all workers: a module, zip, egg or wheel on their module path."""


def cluster_of(session: "SparkSession") -> SparkCluster:
    """The cluster of a session; cheap."""
    if is_connect(session):
        from headgate.spark.connect import ConnectCluster

        return ConnectCluster(session)
    return ClassicCluster(session)


def is_connect(session: "SparkSession") -> bool:
    """Whether it is a session of Spark Connect; loads nothing."""
    return type(session).__module__.startswith("pyspark.sql.connect.")


def signal_of(error: BaseException | None) -> BaseException | None:
    """What a signal has raised: the error itself, or the one over which a call to Java has failed.

    PySpark calls Java once more while an interrupt passes, and Py4J is just closing the connection.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt | SystemExit):
        error = error.__context__ if type(error).__module__.startswith("py4j.") else None
    return error


def drop_java_call() -> None:
    """In a handler of a signal, before it raises: let nobody wait for the call to Java that runs.

    PySpark makes another one while the error passes. After KeyboardInterrupt Py4J takes a new
    connection for it; after any other error it would wait for the answer to the first.
    """
    module = sys.modules.get("pyspark.core.context")
    gateway = getattr(getattr(module, "SparkContext", None), "_gateway", None)
    find = getattr(getattr(gateway, "_gateway_client", None), "get_thread_connection", None)
    connection = None if find is None else find()
    if connection is not None and (opened := connection.socket) is not None:
        connection.socket = None
        with suppress(OSError):
            opened.shutdown(socket.SHUT_RDWR)


class ClassicCluster(SparkCluster):
    """The cluster of a session whose SparkContext lives in this process."""

    def __init__(self, session: "SparkSession") -> None:
        self._context: Any = session.sparkContext

    @property
    def master(self) -> str:
        return self._context.master or ""

    @property
    def is_local(self) -> bool:
        return self.master.startswith("local")

    @property
    def is_own(self) -> bool:
        return self.is_local

    @property
    def is_driven_here(self) -> bool:
        return True

    @property
    def application_id(self) -> str:
        return str(self._context.applicationId)

    @property
    def python(self) -> str:
        return str(self._context.pythonExec)

    @property
    def default_parallelism(self) -> int:
        return int(self._context.defaultParallelism)

    @property
    def is_dynamic(self) -> bool:
        return not self.is_local and is_dynamic(self._context)

    @property
    def java(self) -> Any:
        return self._context._jvm

    def configuration(self) -> Mapping[str, str]:
        return dict(self._context.getConf().getAll())

    def is_stopped(self) -> bool:
        from py4j.protocol import Py4JError

        spark = self._context._jsc
        try:
            return spark is None or bool(spark.sc().isStopped())
        except (Py4JError, OSError):  # the JVM is gone
            return True

    def give_up(self) -> None:
        """Tasks and jobs of a classic session end with it."""

    def slots(self, profile: object | None = None) -> Slots:
        context, java = self._context, getattr(profile, "_java_resource_profile", None)
        try:
            excluded = excluded_executors(context, java)
            total = total_slots(context, java) - sum(executor.slots for executor in excluded)
            return Slots(max(0, total), busy_slots(context), excluded)
        except Exception as error:
            if self.is_stopped():  # also while it is asked
                raise SessionFailed(_STOPPED) from error
            raise

    def allocate(self, count: int, is_over: Callable[[], bool] = lambda: False) -> None:
        if self.slots().free < count:
            allocate(self._context, count, self.running_tasks, is_over)

    def barriers_allowed(self) -> AbstractContextManager[None]:
        return nullcontext() if self.is_local else barriers_allowed(self._context)

    def adopted_profile(self, profile: object) -> object | None:
        return adopted_profile(self._context, profile)

    def running_tasks(self, group: str) -> int:
        return running_tasks(self._context, group)

    def query_stages(self) -> list[QueryStage]:
        return query_stages(self._context)

    def driver_hosts(self) -> tuple[str, str]:
        """Loopback on a local master, otherwise where Spark's own driver listens."""
        if self.is_local:
            return LOOPBACK, LOOPBACK
        conf = self.configuration()
        host = conf.get("spark.driver.host") or socket.gethostname()
        bind = conf.get("spark.driver.bindAddress") or host
        advertised = socket.gethostbyname(host)
        return socket.gethostbyname(bind), advertised

    def thread(
        self, target: Callable[..., None], name: str, args: tuple[Any, ...] = ()
    ) -> threading.Thread:
        from pyspark import InheritableThread

        # Only this kind of thread takes the user's job group, tags and pool over to Spark.
        return InheritableThread(target=target, name=name, args=args)

    def begin_group(self, group: str, description: str) -> None:
        self._context.setJobGroup(group, description, interruptOnCancel=True)

    def cancel_group(self, group: str) -> None:
        self._context.cancelJobGroup(group)

    def cancel_stage(self, stage: str, reason: str) -> None:
        self._context._jsc.sc().cancelStage(int(stage), reason)

    def run_barrier(
        self,
        function: Callable[[Iterable[Any]], Iterator[Any]],
        count: int,
        name: str,
        profile: object | None = None,
    ) -> list[Any]:
        context = self._context
        barrier = context.parallelize(range(count), count).barrier()
        # Spark would name the job after the line of code here; `runJob` leaves our name alone.
        context.setLocalProperty("callSite.short", name)
        tasks = barrier.mapPartitions(function)
        tasks = tasks if profile is None else tasks.withResources(profile)
        found: list[Any] = context.runJob(tasks, iter, list(range(count)))
        return found

    def hides_property(self, key: str) -> bool:
        return _is_redacted(self._context, key)

    def set_property(self, key: str, text: str) -> None:
        self._context.setLocalProperty(key, text)

    def add_file(self, path: str) -> None:
        self._context.addFile(path)

    def add_python_file(self, path: str) -> None:
        self._context.addPyFile(path)


_STOPPED: Final = (
    "the Spark session has been stopped; if nobody has done so, its executors could not start (no "
    "such Python, a full disk, too little memory), and the standard error of the executors says why"
)
_REDACTED: Final = "(?i)secret|password|token|access[.]?key"
"""What Spark leaves out of its logs and pages if nobody says otherwise."""


def _is_redacted(context: Any, key: str) -> bool:
    """Whether a local property stays out of Spark's event log, as far as one can see to that."""
    conf = context._jsc.sc().conf()
    try:
        is_redacted = re.search(conf.get("spark.redaction.regex", _REDACTED), key)
    except re.error:  # Java knows more of them than Python
        return False
    if not is_redacted:
        return False
    # Spark redacts those local properties alone whose names its configuration has, too.
    conf.set(key, "")
    return True
