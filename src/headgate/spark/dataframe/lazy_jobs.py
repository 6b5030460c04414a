"""The jobs behind DataFrames, kept as long as somebody can still execute them.

A derived DataFrame, a view, a cached table or a running query holds Spark's plan, not the Python
object that it came from; but every such plan holds the one Java object that is the function of the
job's stage. A weak reference to that object tells when the last of them is gone. Law: a job is
closed some seconds after Java has collected it, or after its session has ended, and never before;
the jobs that wait for a collection are bounded, because beyond some Java is asked for one. The
thread that sees to it also tells actions when their queries end, and which have to wait.
"""

import gc
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, Protocol

from headgate.host.driver.driver_run import call_safely
from headgate.spark.cluster import SparkCluster
from headgate.spark.dataframe.queries import Queries, queries_of
from headgate.spark.executors import QueryStage
from headgate.spark.job import PreparedJob
from headgate.spark.slot_watch import LOOK_S

log = logging.getLogger(__name__)

FORGET_LOOKS: Final = 3
"""So many looks at actions for one at what is forgotten."""
MOST_UNASKED: Final = 64
"""With this many jobs Java is asked to collect, then with twice as many as that has left."""


class JobActions(Protocol):
    """The actions on a job's DataFrame."""

    application: str
    """Of which Spark has the stages of the job."""

    def query_ended(self, query: str) -> None:
        """A query of the application has ended."""

    def look(self, stages: Sequence[QueryStage]) -> None:
        """``stages``: those that run or wait in the application."""

    def interrupt(self, reason: str) -> None:
        """End those whose runs have not begun yet."""


@dataclass(frozen=True, slots=True)
class LazyJob:
    """A job, and Java's weak reference to its function; None: it lives as long as its session."""

    job: PreparedJob
    function: Any
    actions: JobActions

    @property
    def is_forgotten(self) -> bool:
        try:
            if self.function is not None and self.function.refersTo(None):
                return True
        except Exception as error:  # Java may be gone
            log.debug("job %s: %s", self.job.job_id, error)
        return self.job.cluster.is_stopped()


class LazyJobs:
    """All of this process; a thread looks after those of an application while there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: list[LazyJob] = []
        self._watched: set[str] = set()  # applications
        self._ask_at = MOST_UNASKED

    def add(self, job: LazyJob) -> None:
        """Keep it until it is forgotten."""
        self.forget()
        application = job.actions.application
        with self._lock:
            self._jobs.append(job)
            if application in self._watched:
                return
            self._watched.add(application)
        queries = queries_of(job.job.session)
        arguments = (application, job.job.cluster, queries)
        name = "headgate-lazy-jobs"
        threading.Thread(target=self._look_after, args=arguments, name=name, daemon=True).start()

    def forget(self) -> None:
        """Close those that nobody can execute any more."""
        with self._lock:
            jobs = list(self._jobs)
        gone = [lazy for lazy in jobs if lazy.is_forgotten]
        if len(jobs) - len(gone) >= self._ask_at:
            _collect(jobs[-1].job)
            gone = [lazy for lazy in jobs if lazy.is_forgotten]
            self._ask_at = max(MOST_UNASKED, 2 * (len(jobs) - len(gone)))
        with self._lock:
            own = [lazy for lazy in gone if lazy in self._jobs]
            self._jobs = [lazy for lazy in self._jobs if lazy not in gone]
        for lazy in own:
            lazy.job.close()

    def interrupt(self, reason: str) -> None:
        """End the actions whose runs have not begun yet."""
        with self._lock:
            jobs = list(self._jobs)
        for lazy in jobs:
            lazy.actions.interrupt(reason)

    def _actions(self, application: str) -> list[JobActions]:
        with self._lock:
            found = [lazy.actions for lazy in self._jobs]
        return [actions for actions in found if actions.application == application]

    def _look_after(self, application: str, cluster: SparkCluster, queries: Queries) -> None:
        looked_at_s = time.monotonic()
        for number in count(1):
            while (left_s := looked_at_s + LOOK_S - time.monotonic()) > 0:
                if query := queries.await_end(left_s):
                    for actions in self._actions(application):
                        call_safely(actions.query_ended, query)
            looked_at_s = time.monotonic()
            try:
                stages = cluster.query_stages()
            except Exception as error:  # another version of Spark, or it is gone
                log.debug("the stages of %s are not known: %s", application, error)
            else:
                for actions in self._actions(application):
                    call_safely(actions.look, stages)
            if number % FORGET_LOOKS == 0:
                call_safely(self.forget)
            with self._lock:
                if not any(lazy.actions.application == application for lazy in self._jobs):
                    self._watched.remove(application)
                    break
        queries.close()


lazy_jobs: Final = LazyJobs()


def keep_until_forgotten(job: PreparedJob, function: Any, actions: JobActions) -> None:
    """``function``: Java's object that every plan with the job holds; None: it is not known."""
    weak = None
    if function is not None:
        weak = job.cluster.java.java.lang.ref.WeakReference(function)
    lazy_jobs.add(LazyJob(job, weak, actions))


def _collect(job: PreparedJob) -> None:
    """Python first: its objects keep those of Java."""
    gc.collect()
    try:
        job.cluster.java.System.gc()
    except Exception as error:
        log.debug("Java cannot be asked to collect: %s", error)
