"""The runtime of programs: what the API needs of Spark, of connectors and of the driver."""

import atexit
import logging
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final

from headgate.api.draft import unexecuted
from headgate.api.job import RunningJob
from headgate.api.program import Program
from headgate.base.errors import HeadgateError
from headgate.base.user_traceback import user_traceback
from headgate.connectors.function import FunctionSource
from headgate.functions.function import SourceFunction
from headgate.functions.sink import Sink
from headgate.functions.source import Source
from headgate.spark.collect import CollectedResults, CollectSink, DriverPrintSink
from headgate.spark.configuration import given_settings
from headgate.spark.job import SparkJob
from headgate.spark.session import active_session, slots
from headgate.spark.submission import launch

log = logging.getLogger(__name__)

MOST_BY_DEFAULT: Final = 4


def open_runtime() -> "SparkRuntime":
    """Called once, when a program first needs it."""
    atexit.register(warn_unexecuted)
    if sys.excepthook is sys.__excepthook__:  # a debugger's or the user's own stays
        sys.excepthook = show_uncaught
    return SparkRuntime()


def show_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Show where in the program a sentence of ours was raised; with the log level debug, all."""
    if isinstance(error, HeadgateError) and not log.isEnabledFor(logging.DEBUG):
        with suppress(OSError, ValueError, AttributeError):  # standard error may be closed
            sys.stderr.write(user_traceback(error))
            return
    sys.__excepthook__(kind, error, trace)


def warn_unexecuted() -> None:
    """At the end of the process: warn of a forgotten ``execute()``.

    Not if it ends with an exception, and not after a session at a prompt or a run of tests.
    """
    problem = unexecuted.problem()
    is_other = hasattr(sys, "last_value") or hasattr(sys, "ps1") or "_pytest" in sys.modules
    if problem and not is_other:
        log.warning("%s", problem)


class SparkRuntime:
    """See ``headgate.api.runtime.Runtime``."""

    def settings(self) -> Mapping[str, str]:
        return given_settings()

    def default_parallelism(self, configuration: Mapping[str, str]) -> int:
        session = active_session()
        if session is not None:
            total = slots(session).total
        elif found := re.match(r"local\[(\d+)\b", configuration.get("spark.master", "")):
            total = int(found[1])
        else:
            total = os.cpu_count() or 1
        return max(1, min(MOST_BY_DEFAULT, total))

    def launch(self, program: Program) -> SparkJob:
        return launch(program)

    def collect_sink(self) -> Sink:
        return CollectSink()

    def collect(self, program: Program, node: int) -> CollectedResults:
        (sink,) = [sink for _, sink in program.graph.nodes[node].functions]
        assert isinstance(sink, CollectSink)
        results = sink.results
        assert results is not None
        results.started(launch(program))
        return results

    def dataframe_sink(self, schema: object, as_batches: bool = False) -> Sink:
        from headgate.connectors.dataframe.sink import DataFrameSink

        return DataFrameSink(schema, as_batches)

    def to_dataframe(self, program: Program, node: int, schema: object) -> object:
        from headgate.spark.dataframe.conversion import to_dataframe

        return to_dataframe(program, node)

    def dataframe_source(
        self, dataframe: object, order_by: Sequence[str], partition_by: Sequence[str]
    ) -> Source:
        from headgate.spark.dataframe.conversion import dataframe_source

        return dataframe_source(dataframe, order_by, partition_by)

    def arrow_source(self, table: object) -> Source:
        from headgate.connectors.arrow.table_source import arrow_source

        return arrow_source(table)

    def arrow_schema(self, schema: object, caller: str) -> Any:
        from headgate.connectors.arrow.types import arrow_schema
        from headgate.spark.dataframe.schema import arrow_schema_of

        if isinstance(schema, str) or type(schema).__module__.startswith("pyspark."):
            return arrow_schema_of(schema, caller)
        return arrow_schema(schema, f"{caller}()")

    def row_maker(self) -> Callable[[Sequence[str]], Any]:
        from headgate.connectors.arrow.columns import RowMaker

        return RowMaker

    def batch_maker(self, schema: Any) -> Callable[[str], Callable[[list[object]], Any]]:
        from headgate.connectors.arrow.columns import BatchMaker

        return BatchMaker(schema)

    def streaming_source(self, dataframe: object, name: str) -> Source:
        from headgate.spark.streaming.job_streams import streaming_source

        return streaming_source(dataframe, name)

    def streaming_frame(
        self, schema: object, name: str, configuration: Mapping[str, str]
    ) -> tuple[Sink, object]:
        from headgate.spark.streaming.job_streams import streaming_frame

        return streaming_frame(schema, name, configuration)

    def function_source(self, function: SourceFunction[object]) -> Source:
        return FunctionSource(function, bounded=getattr(function, "bounded", False) is True)

    def job_html(self, job: RunningJob) -> str:
        from headgate.observe.display import display
        from headgate.observe.web.server import page_link

        assert isinstance(job, SparkJob), "launch() starts no others"
        return display().html(job, page_link(job.job_id))

    def print_sink(self, sink_identifier: str | None) -> Sink:
        return DriverPrintSink(sink_identifier)
