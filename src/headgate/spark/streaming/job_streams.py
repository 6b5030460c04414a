"""The named inputs and outputs of a job that is launched, and streaming DataFrames in and out.

Logs are in folders below ``streams`` in the checkpoint folder, in one of the job's own; without a
checkpoint folder in a private one that goes with the process. Law: a job that goes on from a
checkpoint of another job has that job's logs. A log outlives the job, for queries to read the rest
and for a later job to go on; one that a query of the job itself feeds begins anew with the job, and
goes with it if it is private.

A DataFrame that goes in gets a streaming query, which lives as long as the job and writes into an
input of it. Law: a query that fails, or that somebody stops, fails the job with its reason.
"""

import logging
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from msgspec import structs

from headgate.api.program import Program
from headgate.base.errors import FrameInvalid, HeadgateError, PathUnusable, PlanInvalid, StreamUnfit
from headgate.base.object_store import is_s3
from headgate.base.redaction import plain_url
from headgate.connectors.streaming.log_folder import LogFolder
from headgate.connectors.streaming.sink import StreamingOutput
from headgate.connectors.streaming.source import StreamingInput
from headgate.connectors.streaming.stream_end import StreamEnd
from headgate.connectors.streaming.stream_log import (
    RUNNING,
    StreamLog,
    StreamOwner,
    process_since,
    this_host,
)
from headgate.host.files.owned_folder import shared_folder
from headgate.spark import register
from headgate.spark.cluster import SparkCluster, cluster_of
from headgate.spark.dataframe.schema import TypeUnknown, check_types, read_schema, row_shape
from headgate.spark.session import find_session
from headgate.spark.streaming.addresses import REFERENCE, check_declared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.spark.job import SparkJob

CHECKPOINTS: Final = "query"
"""Spark's own checkpoints of the query, in the folder of the input."""
NO_FILE_SYSTEM: Final = re.compile(
    r"Class \S+\.fs\.\S+ not found|No (Abstract)?FileSystem (for|configured)"
)
"""What Hadoop says if the class of a file system is missing, or it knows none for an address."""
LOOK_S: Final = 0.2

log = logging.getLogger(__name__)

STREAMS: Final = "streams"
HOME: Final = "home.json"


def streaming_source(dataframe: object, name: str) -> StreamingInput:
    """The rows of a streaming DataFrame; raises FrameInvalid."""
    from pyspark.sql import DataFrame

    user = "from_streaming_dataframe()"
    if not isinstance(dataframe, DataFrame):
        raise FrameInvalid(
            f"was given a {type(dataframe).__module__}.{type(dataframe).__name__}; "
            f"give a streaming DataFrame, for instance spark.readStream.format(…).load()",
            user,
        )
    if not dataframe.isStreaming:
        raise FrameInvalid("was given a DataFrame that ends; give it to from_dataframe()", user)
    try:
        check_types(dataframe.schema)
    except TypeUnknown as unknown:
        raise FrameInvalid(
            f"was given a DataFrame whose column {unknown.path!r} {unknown.problem}", user
        ) from None
    source = StreamingInput(name, dataframe.schema)
    source.stream.frame = dataframe
    return source


def streaming_frame(
    schema: object, name: str, configuration: Mapping[str, str]
) -> tuple[StreamingOutput, object]:
    """A sink, and a streaming DataFrame of what comes to it; raises SchemaInvalid, FrameInvalid."""
    session = find_session(configuration)
    check_driver(cluster_of(session), name)
    kind = read_schema(schema)
    row_shape(session, kind)  # what is wrong with it is said now
    register(session)
    sink = StreamingOutput(name, kind)
    sink.stream.reference = os.path.join(shared_folder("references"), secrets.token_hex(8))
    reader = session.readStream.format("headgate").option(REFERENCE, sink.stream.reference)
    return sink, reader.schema(kind).load()


def check_driver(cluster: SparkCluster, name: str) -> None:
    """Refuse a Spark Connect server on another machine: it would not find the job's output."""
    if not cluster.is_driven_here:
        raise FrameInvalid(
            f"gives the Spark Connect server a file of this machine, and it runs on another one; "
            f"write sink_to(StreamingOutput({name!r}, …, path=…)) with a folder that both see, and "
            f"read it with spark.readStream.format('headgate').load(…)",
            "to_streaming_dataframe()",
        )


class FeedingQuery:
    """A query that writes a streaming DataFrame into an input of a job that has just started."""

    def __init__(
        self,
        end: StreamEnd,
        session: "SparkSession",
        job_id: str,
        fail: Callable[[str], None],
        job_ended: threading.Event,
        is_passing: bool = False,
    ) -> None:
        """``fail`` is called with the reason if the query ends before the job.

        ``is_passing``: nothing can go on from the log when the job has ended, so it goes, too.
        """
        self._job_ended = job_ended
        self._is_passing = is_passing
        self._end = end
        self._fail = fail
        register(session)
        frame: Any = end.frame
        writer = frame.writeStream.format("headgate").option("path", end.uri)
        writer = writer.queryName(f"headgate {job_id} {end.name}")
        place = query_checkpoints(end.log())
        try:
            self._query = writer.option("checkpointLocation", place).start()
        except Exception as error:
            raise StreamUnfit(f"{end.shown}: {_not_started(error, end, place)}") from error
        thread = threading.Thread(target=self._watch, name=f"headgate-query-{end.name}")
        thread.daemon = True
        thread.start()

    def _watch(self) -> None:
        try:
            self._follow()
        except Exception as error:  # Spark is stopping, or Java is gone
            log.debug("the query of %s cannot be followed: %s", self._end.shown, error)
        self._job_ended.wait()
        if self._is_passing:
            with suppress(PathUnusable):
                self._end.log().folder.remove_all()

    def _follow(self) -> None:
        while not self._job_ended.wait(LOOK_S):
            if not self._query.isActive:
                self._report()
                return
        self._query.stop()

    def _report(self) -> None:
        error = self._query.exception()
        if self._job_ended.is_set():
            return
        how = "was stopped; cancel the job instead" if error is None else f"failed: {reason(error)}"
        self._fail(f"the streaming query that feeds {self._end.shown} {how}")


def query_checkpoints(log: StreamLog) -> str:
    """Where Spark keeps the checkpoints of the query that feeds a log.

    Below the log, and named by it: a log that is made anew has a query that begins anew, wherever
    Spark's file system of that address leads.
    """
    info = log.info()
    assert info is not None, log.uri
    return spark_address(log.folder.below(f"{CHECKPOINTS}/{info.log}").uri)


def spark_address(uri: str) -> str:
    """An address of ours in the words of Hadoop's file systems.

    They have settings of their own for credentials and options, and take a path without a scheme
    for one in HDFS if that is their default.
    """
    plain = plain_url(uri)
    if "://" not in plain:
        return f"file://{plain}"
    return f"s3a{plain[plain.index(':') :]}" if is_s3(plain) else plain


def _not_started(error: Exception, end: StreamEnd, place: str) -> str:
    if NO_FILE_SYSTEM.search(str(error)) is None:
        return f"its query does not start: {reason(error)}"
    return (
        f"Spark has no file system for {place}, where its query would keep its checkpoints; add "
        f"the file system to the session (org.apache.hadoop:hadoop-aws for S3), or start a query "
        f"yourself that writes into StreamingInput({end.name!r}, …), with a checkpointLocation "
        f"that Spark reaches"
    )


def reason(error: BaseException) -> str:
    """What Spark says of an error, in a few lines: the last line of a traceback is what counts."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [
        line for line in lines if line.startswith(("headgate.", "pyspark.errors", "Caused by"))
    ]
    return (raised or lines or [type(error).__name__])[-1 if raised else 0]


@dataclass(frozen=True, slots=True)
class StreamHome:
    """What decides where the logs of a job are."""

    job_id: str
    name: str
    folder: str
    """The folder of checkpoints; empty: there is none."""
    origin: str
    """The job whose checkpoint is restored; empty: none is."""
    checkpoint: int | None
    """Its number; None: none is restored."""
    takes_checkpoints: bool


class JobStreams:
    """The inputs and outputs of one job; closed with it."""

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

    def started(self, job: "SparkJob", session: "SparkSession") -> None:
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

    def _end_with(self, job: "SparkJob") -> None:
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
                self._set_state(end, RUNNING, problem)

    def close(self, state: str, problem: str = "") -> None:
        """The job has ended. Idempotent; never raises."""
        with self._lock:
            ends, self._attached = self._attached, []
        for end in ends:
            self._set_state(end, state, problem)

    def _set_state(self, end: StreamEnd, state: str, problem: str) -> None:
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
        # It lives as long as the process: queries may read the rest after a job's end.
        return LogFolder(shared_folder("streams")).below(place.job_id)
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
