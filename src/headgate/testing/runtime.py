"""The runtime of programs under test: they run in this process, without Spark.

What only Spark can do (DataFrames, streaming queries) is refused in one sentence. Records end in
lists, which every attempt of the job shares. Law: in a run with faults a record counts once its
checkpoint is complete, or at the end of the job, and once only, however often it is committed;
otherwise it counts when it is written.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, NoReturn, Protocol, TypeAlias

from headgate.api.job import JobExecutionResult, JobStatus, Promise, RunningJob
from headgate.api.program import Program
from headgate.api.types.types import TypeInformation
from headgate.base.checkpoints import Stop
from headgate.base.elements import Record
from headgate.base.errors import HarnessMisused
from headgate.base.values import own
from headgate.connectors.formats.record_text import printed_text
from headgate.connectors.print_sink import format_prefix
from headgate.functions.context import ConnectorContext, SnapshotMoment
from headgate.functions.function import SourceFunction
from headgate.functions.sink import Committer, CommittingSinkWriter, Sink, TwoPhaseCommittingSink
from headgate.functions.source import Source
from headgate.testing.function_source import SteppedFunctionSource
from headgate.testing.outside import ByReference

Batch: TypeAlias = tuple[int, int, list[Record]]
"""The number of the writer, its own among those of the writer, and the records."""


class StreamOutput(ByReference):
    """The records of one output, in order of arrival."""

    def __init__(self, name: str, staged: bool = False) -> None:
        """``staged``: records wait for their checkpoint, or the end, as a run may be repeated."""
        self.name = name
        self.staged = staged
        self.records: list[Record] = []
        self._writers = count(1)
        self._committed: set[tuple[int, int]] = set()

    def next_writer(self) -> int:
        """A number that no other writer has."""
        return next(self._writers)

    def take(self, records: Sequence[Record]) -> None:
        """Add records to the output."""
        self.records += records

    def commit(self, batch: Batch) -> None:
        """Add a batch of records, unless it was added before."""
        writer, number, records = batch
        if (writer, number) not in self._committed:
            self._committed.add((writer, number))
            self.take(records)


class PrintedOutput(StreamOutput):
    """The lines that were printed, with the number of the task, and the records."""

    def __init__(self, name: str, staged: bool, echo: Callable[[str], None]) -> None:
        super().__init__(name, staged)
        self.lines: list[str] = []
        self._echo_line = echo

    def take(self, records: Sequence[Record]) -> None:
        """Pairs of line and record."""
        for line, record in records:
            self.lines.append(line)
            self.records.append(record)
            self._echo_line(line)


class OutputSink(TwoPhaseCommittingSink):
    """Ends in an output."""

    def __init__(self, output: StreamOutput) -> None:
        self.output = output

    def create_writer(self, context: ConnectorContext) -> CommittingSinkWriter:
        return StreamOutputWriter(self.output)

    def create_committer(self, context: ConnectorContext) -> Committer:
        return StreamOutputCommitter(self.output)


class PrintedSink(OutputSink):
    """The lines that ``print`` would print."""

    def __init__(self, output: PrintedOutput, identifier: str | None) -> None:
        super().__init__(output)
        self.identifier = identifier
        self.type_info: TypeInformation | None = None

    def for_type(self, type_info: TypeInformation | None) -> "PrintedSink":
        """This sink, for records of a declared type."""
        self.type_info = type_info
        return self

    def create_writer(self, context: ConnectorContext) -> CommittingSinkWriter:
        task = context.task
        prefix = format_prefix(self.identifier, task.subtask, task.parallelism)
        text = printed_text(self.type_info)
        return StreamOutputWriter(self.output, lambda record: (prefix + text(record), own(record)))


class StreamOutputWriter(CommittingSinkWriter):
    """Writes the records of one task to an output."""

    def __init__(
        self, output: StreamOutput, made: Callable[[Record], Record] | None = None
    ) -> None:
        """``made``: what becomes of a record."""
        self._output = output
        self._staged = output.staged
        self._made = made or own  # whoever has sent it may still change it
        self._writer = output.next_writer()
        self._number = 0
        self._records: list[Record] = []

    def write(self, records: list[Record]) -> None:
        taken = [self._made(record) for record in records]
        if self._staged:
            self._records += taken
        else:
            self._output.take(taken)

    def prepare_commit(self, moment: SnapshotMoment | None) -> Sequence[Batch]:
        if not self._records:
            return ()
        self._number += 1
        records, self._records = self._records, []
        return [(self._writer, self._number, records)]


class StreamOutputCommitter(Committer):
    """Commits the records of one task to an output."""

    def __init__(self, output: StreamOutput) -> None:
        self._output = output

    def commit(self, committables: Sequence[Any]) -> None:
        for batch in committables:
            self._output.commit(batch)


DEFAULT_PARALLELISM = 2
JOB_ID = "testing"


class RunProgram(Protocol):
    """Runs a program to its end, and raises what made it fail."""

    def __call__(self, program: Program) -> None: ...


class TestingRuntime:
    """Implements ``headgate.api.runtime.Runtime`` without Spark."""

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
        """The outputs of all sinks that ``collect`` and ``print`` have made."""
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
        """A sink for an output of this name, followed by a number if the name is taken."""
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
        from headgate.connectors.arrow.columns import RowMaker

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
        """The name, followed by a number if another output has it."""
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
    """The result of ``execute_and_collect``; the job has ended already."""

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
    """A ``RunningJob`` that has ended: a program under test ends before ``execute`` returns."""

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
