"""The runtime of programs under test: they run in this process, without Spark.

What only Spark can do (DataFrames, streaming queries) is refused in one sentence.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, Protocol

from headgate.api.job import JobExecutionResult, JobStatus, Promise, RunningJob
from headgate.api.program import Program
from headgate.base.checkpoints import Stop
from headgate.base.elements import Record
from headgate.base.errors import HarnessMisused
from headgate.functions.function import SourceFunction
from headgate.functions.sink import Sink
from headgate.functions.source import Source
from headgate.testing.function_source import SteppedFunctionSource
from headgate.testing.results import OutputSink, PrintedOutput, PrintedSink, StreamOutput

DEFAULT_PARALLELISM = 2
JOB_ID = "testing"


class RunProgram(Protocol):
    """Runs a program to its end, and raises what made it fail."""

    def __call__(self, program: Program) -> None: ...


class TestingRuntime:
    """See ``headgate.api.runtime.Runtime``."""

    __test__ = False

    def __init__(
        self,
        run: RunProgram,
        parallelism: int = DEFAULT_PARALLELISM,
        settings: Mapping[str, str] | None = None,
        with_faults: bool = False,
    ) -> None:
        """``settings`` are those of a new environment; ``with_faults``: runs may be repeated, so
        that records count when they are committed, and what is printed is not seen.
        """
        self.outputs: list[StreamOutput] = []
        """Of all sinks that ``collect`` and ``print`` have made."""
        self._run = run
        self._parallelism = parallelism
        self._settings = dict(settings or {})
        self._with_faults = with_faults

    def settings(self) -> Mapping[str, str]:
        return self._settings

    def default_parallelism(self, configuration: Mapping[str, str]) -> int:
        return self._parallelism

    def launch(self, program: Program) -> RunningJob:
        self._run(program)
        return EndedJob()

    def collect_sink(self) -> OutputSink:
        return self.output_sink("collect")

    def output_sink(self, name: str) -> OutputSink:
        """What comes to it can be read under this name, if no other sink has it."""
        output = StreamOutput(self._free(name), self._with_faults)
        self.outputs.append(output)
        return OutputSink(output)

    def collect(self, program: Program, node: int) -> "CollectedRecords":
        (sink,) = [sink for _, sink in program.graph.nodes[node].functions]
        assert isinstance(sink, OutputSink)
        self._run(program)
        return CollectedRecords(sink.output.records)

    def print_sink(self, sink_identifier: str | None) -> Sink:
        name = self._free(sink_identifier or "print")
        output = PrintedOutput(name, self._with_faults, self._show)
        self.outputs.append(output)
        return PrintedSink(output, sink_identifier)

    def function_source(self, function: SourceFunction[object]) -> Source:
        return SteppedFunctionSource(function, getattr(function, "bounded", False) is True)

    def arrow_source(self, table: object) -> Source:
        from headgate.connectors.arrow.table_source import arrow_source

        return arrow_source(table)

    def arrow_schema(self, schema: object, caller: str) -> Any:
        from headgate.connectors.arrow.types import arrow_schema

        return arrow_schema(schema, f"{caller}()")

    def row_maker(self) -> Callable[[Sequence[str]], Any]:
        from headgate.connectors.arrow.rows import RowMaker

        return RowMaker

    def batch_maker(self, schema: Any) -> Callable[[str], Callable[[list[object]], Any]]:
        from headgate.connectors.arrow.columns import BatchMaker

        return BatchMaker(schema)

    # What needs Spark.

    def dataframe_sink(self, schema: object, as_batches: bool = False) -> Sink:
        _refuse("to_dataframe()", "collect the stream, and test what is done with it on Spark")

    def to_dataframe(self, program: Program, node: int, schema: object) -> object:
        _refuse("to_dataframe()", "collect the stream, and test what is done with it on Spark")

    def dataframe_source(
        self, dataframe: object, order_by: Sequence[str], partition_by: Sequence[str]
    ) -> Source:
        _refuse("from_dataframe()", "give the rows with from_collection() or from_arrow()")

    def streaming_source(self, dataframe: object, name: str) -> Source:
        _refuse("from_streaming_dataframe()", "give the rows with a ManualSource")

    def streaming_frame(
        self, schema: object, name: str, configuration: Mapping[str, str]
    ) -> tuple[Sink, object]:
        _refuse("to_streaming_dataframe()", "return the stream from build()")

    def job_html(self, job: RunningJob) -> str:
        return "<p>This job has run in a test.</p>"

    def _free(self, name: str) -> str:
        """The name, with a number behind it if another output has it."""
        taken = {output.name for output in self.outputs}
        return next(
            candidate
            for number in range(1, len(taken) + 2)
            if (candidate := name if number == 1 else f"{name} {number}") not in taken
        )

    def _show(self, line: str) -> None:
        if not self._with_faults:
            sys.stdout.write(f"{line}\n")


def _refuse(what: str, instead: str) -> NoReturn:
    raise HarnessMisused(f"{what} needs Spark, and headgate.testing runs without it; {instead}")


class CollectedRecords(Iterator[Record]):
    """What ``execute_and_collect`` gives; the job has ended already."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = iter(list(records))

    def __next__(self) -> Record:
        return next(self._records)

    def close(self) -> None:
        """The rest is not wanted."""
        self._records = iter(())

    def abandon(self) -> None:
        self.close()


class EndedJob:
    """See ``RunningJob``: a program under test has ended when ``execute`` returns."""

    job_id = JOB_ID

    def status(self) -> JobStatus:
        return JobStatus.FINISHED

    def cancel(self) -> None:
        """It has ended."""

    def wait(self) -> JobExecutionResult:
        return JobExecutionResult(JOB_ID)

    def savepoint(self, directory: str | None, stop: Stop) -> Promise[str]:
        raise HarnessMisused("the job has ended; take a snapshot() of what run_local returns")

    def metrics(self) -> Mapping[str, object]:
        return {}

    def read_state(
        self, operator: str, state: str, keys: Sequence[object], timeout_s: float
    ) -> Promise[list[object]]:
        raise HarnessMisused("the job has ended already; ask state() of what run_local returns")
