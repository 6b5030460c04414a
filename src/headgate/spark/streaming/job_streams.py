"""The named inputs and outputs of a job that is launched: where their logs are, and whose.

Logs are in folders below ``streams`` in the checkpoint folder, in one of the job's own; without a
checkpoint folder in a private one that goes with the process. Law: a job that goes on from a
checkpoint of another job has that job's logs. A log outlives the job, for queries to read the rest
and for a later job to go on; one that a query of the job itself feeds begins anew with the job, and
goes with it if it is private.
"""

import logging
import os
import secrets
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
import pyarrow as pa
from msgspec import structs

from headgate.api.job import JobStatus
from headgate.api.program import Program
from headgate.base.errors import HeadgateError, PlanInvalid
from headgate.base.job_records import FailureRecord
from headgate.connectors.streaming.log_folder import LogFolder
from headgate.connectors.streaming.stream_end import StreamEnd
from headgate.connectors.streaming.stream_log import (
    RUNNING,
    StreamLog,
    StreamOwner,
    process_since,
    this_host,
)
from headgate.spark.cluster import cluster_of
from headgate.spark.dataframe.schema import read_schema, row_shape
from headgate.spark.job_files import scratch_folder
from headgate.spark.streaming.frames import FeedingQuery
from headgate.spark.streaming.schemas import check_declared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

STREAMS: Final = "streams"
HOME: Final = "home.json"


class LaunchedJob(Protocol):
    """What is asked of a job that was launched."""

    job_id: str

    def status(self) -> JobStatus: ...

    def failures(self) -> list[FailureRecord]: ...

    def when_ended(self, call: Callable[[], None]) -> None: ...

    def cancel_soon(self, reason: str) -> None: ...


@dataclass(frozen=True, slots=True)
class StreamHome:
    """What decides where the logs of a job are."""

    job_id: str
    name: str
    folder: str
    """Of checkpoints; empty: there is none."""
    origin: str
    """The job whose checkpoint is restored; empty: none is."""
    checkpoint: int | None
    """Its number; None: none is restored."""
    takes_checkpoints: bool


class JobStreams:
    """Of one job; closed with it."""

    def __init__(self, program: Program, place: StreamHome) -> None:
        """Raises PlanInvalid."""
        self._ends = streams_of(program)
        if not place.takes_checkpoints:
            check_commits(program, self._ends)
        self._owner = StreamOwner(
            secrets.token_hex(8),
            place.job_id,
            place.name,
            this_host(),
            os.getpid(),
            since=process_since(os.getpid()),
        )
        self._job_ended = threading.Event()
        """One for all queries, also for those that are started when it is set already."""
        self._lock = threading.Lock()
        self._place = place
        self._attached: list[StreamEnd] = []

    def attach(self, session: "SparkSession") -> None:
        """Make or find the logs; raises StreamUnfit, SchemaInvalid or PathUnusable."""
        check_place(self._ends, self._place.folder, cluster_of(session).is_local)
        home = _home(self._place)
        try:
            for end in self._ends:
                uri = end.path or home.below(f"{end.kind}s").below(end.name).uri
                types = _settle_schema(end, session)
                if end.frame is not None and not self._place.origin:
                    _forget_ended(uri)
                end.attach(uri, self._owner, types, self._place.checkpoint)
                self._attached.append(end)
                if end.reference:
                    folder, _, name = end.reference.rpartition("/")
                    LogFolder(folder).replace(name, end.uri.encode())
        except BaseException:
            self.close("FAILED", "it was not started")
            raise

    def addresses(self) -> tuple[tuple[str, str, str], ...]:
        """Kind, name and folder of each."""
        return tuple((end.kind, end.name, end.uri) for end in self._attached)

    def started(self, job: LaunchedJob, session: "SparkSession") -> None:
        """The job runs: start the queries that feed it, and follow it to its end."""
        fed = [end for end in self._attached if end.frame is not None]
        job.when_ended(lambda: self._end_with(job))
        try:
            for end in fed:
                passing = not (end.path or self._place.folder)
                FeedingQuery(end, session, job.job_id, self.fail, self._job_ended, passing)
        except BaseException:
            job.cancel_soon("a streaming query that feeds it cannot be started")
            raise

    def _end_with(self, job: LaunchedJob) -> None:
        try:
            status, failures = job.status().name, job.failures()
            problem = failures[0].message if status == "FAILED" and failures else ""
            self.close(status, problem)
        finally:
            self._job_ended.set()

    def fail(self, problem: str) -> None:
        """The job cannot go on: its inputs say why, to the job itself."""
        for end in self._attached:
            if end.kind == "input":
                self._tell(end, RUNNING, problem)

    def close(self, state: str, problem: str = "") -> None:
        """The job has ended. Idempotent; never raises."""
        with self._lock:
            ends, self._attached = self._attached, []
        for end in ends:
            self._tell(end, state, problem)

    def _tell(self, end: StreamEnd, state: str, problem: str) -> None:
        stream = StreamLog(end.uri)
        try:
            found = stream.owner()
            if found is not None and found.token == self._owner.token and found.state == RUNNING:
                stream.set_owner(structs.replace(found, state=state, problem=problem))
        except HeadgateError as error:
            log.warning("%s: queries do not learn that the job has ended: %s", end.shown, error)


def streams_of(program: Program) -> list[StreamEnd]:
    """The named inputs and outputs of a program; raises PlanInvalid if two have one name."""
    found: dict[tuple[str, str], StreamEnd] = {}
    for node in program.graph.nodes.values():
        for _, function in node.functions:
            end = getattr(function, "stream", None)
            if not isinstance(end, StreamEnd):
                continue
            if found.setdefault((end.kind, end.name), end) is not end:
                raise PlanInvalid(f"the program has two {end.kind}s {end.name!r}; rename one")
    return list(found.values())


def check_commits(program: Program, ends: Iterable[StreamEnd]) -> None:
    """Raises PlanInvalid if an output would never show anything."""
    endless = any(
        not getattr(node.source, "bounded", True)
        for node in program.graph.nodes.values()
        if node.source is not None
    )
    for end in ends:
        if end.kind == "output" and endless:
            raise PlanInvalid(
                f"{end.shown} shows rows when a checkpoint covers them, and this job takes none; "
                f"call env.enable_checkpointing(1000)"
            )


def check_place(ends: Iterable[StreamEnd], folder: str, is_local: bool) -> None:
    """Raises PlanInvalid if workers on other machines could not reach a log."""
    for end in ends:
        if not (end.path or folder or is_local):
            raise PlanInvalid(
                f"{end.shown} needs a folder that the driver, all workers and Spark's executors "
                f"share: set execution.checkpointing.dir, or give path=..."
            )


def _home(place: StreamHome) -> LogFolder:
    if not place.folder:
        return LogFolder(_private_folder()).below(place.job_id)
    folder = LogFolder(place.folder).below(STREAMS)
    if place.origin and place.origin != place.job_id:
        home = _linked(folder, place.origin)
        if folder.has(home):
            own = folder.below(place.job_id)
            own.make()
            own.replace(HOME, msgspec.json.encode(home))
            return folder.below(home)
    return folder.below(_linked(folder, place.job_id))


def _linked(folder: LogFolder, job: str) -> str:
    """The job whose folder another one goes on with."""
    data = folder.read(f"{job}/{HOME}")
    return job if data is None else msgspec.json.decode(data, type=str)


@cache
def _private_folder() -> str:
    """One for the life of the process: queries may read the rest after a job's end."""
    return scratch_folder()


def _forget_ended(uri: str) -> None:
    owner = StreamLog(uri).owner()
    if owner is not None and owner.state in ("FINISHED", "CANCELED"):
        LogFolder(uri).remove_all()


def _settle_schema(end: StreamEnd, session: "SparkSession") -> tuple[str, ...]:
    """The schema in Arrow's words, and the types in Spark's."""
    if isinstance(end.schema, pa.Schema):
        check_declared(end.schema, end.shown)
        return ()
    shape = row_shape(session, read_schema(end.schema))
    end.schema = shape.schema
    return shape.types
