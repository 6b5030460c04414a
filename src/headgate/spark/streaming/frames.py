"""Streaming DataFrames in and out of a program, the short way.

A DataFrame that goes in gets a streaming query, which lives as long as the job: it writes into an
input of the job, and its checkpoints are in the folder of that input. One that comes out reads an
output whose folder is known when the job is launched. Law: a query that fails, or that somebody
stops, fails the job with its reason.
"""

import logging
import os
import re
import secrets
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from headgate.base.errors import FrameInvalid, PathUnusable, StreamUnfit
from headgate.base.object_store import is_s3
from headgate.base.redaction import plain_url
from headgate.connectors.streaming.sink import StreamingOutput
from headgate.connectors.streaming.source import StreamingInput
from headgate.connectors.streaming.stream_end import StreamEnd
from headgate.connectors.streaming.stream_log import StreamLog
from headgate.spark import register
from headgate.spark.cluster import SparkCluster, cluster_of
from headgate.spark.dataframe.schema import TypeUnknown, check_types, read_schema, row_shape
from headgate.spark.job_files import scratch_folder
from headgate.spark.session import find_session
from headgate.spark.streaming.addresses import REFERENCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

CHECKPOINTS: Final = "query"
"""Spark's own checkpoints of the query, in the folder of the input."""
NO_FILE_SYSTEM: Final = re.compile(
    r"Class \S+\.fs\.\S+ not found|No (Abstract)?FileSystem (for|configured)"
)
"""What Hadoop says if the class of a file system is missing, or it knows none for an address."""
LOOK_S: Final = 0.2


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
    sink.stream.reference = os.path.join(_references(), secrets.token_hex(8))
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


@cache
def _references() -> str:
    return scratch_folder()


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
