"""A runtime for tests: runs a program in one task for each operator, one operator after the other.

The operators are the real ones; there is no chain, no channel and no copying. Sources must end.
Records keep their timestamps; the only watermark is the last one, at the end of the input.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

from headgate.api.job import JobExecutionResult, JobStatus, Promise, RunningJob
from headgate.api.program import Program
from headgate.base.checkpoints import Stop
from headgate.base.elements import (
    MAX_WATERMARK_MS,
    Bundle,
    LatencyMarker,
    Record,
    StreamStatus,
    Watermark,
)
from headgate.base.errors import HeadgateError
from headgate.base.messages import SplitsAssigned
from headgate.connectors.arrow.columns import BatchMaker, RowMaker
from headgate.connectors.arrow.table_source import arrow_source
from headgate.connectors.arrow.types import arrow_schema
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.operator import Operator, PollResult
from headgate.core.chain.outputs import typed
from headgate.core.operators.source import SourceOperator
from headgate.core.operators.split_discovery import pickled_splits
from headgate.functions.context import TaskInfo
from headgate.functions.function import SourceFunction
from headgate.functions.sink import Sink, SinkWriter
from headgate.functions.source import Source, SplitReader
from headgate.plan.stream_graph import StreamEdge, StreamGraph, StreamNode

DEFAULT_PARALLELISM = 3


class OneTaskRuntime:
    """Remembers the programs it was given."""

    def __init__(self) -> None:
        self.programs: list[Program] = []
        self.printed: list[str] = []
        self.closed = 0
        self.given: dict[str, str] = {}

    def settings(self) -> Mapping[str, str]:
        return self.given

    def default_parallelism(self, configuration: Mapping[str, str]) -> int:
        return DEFAULT_PARALLELISM

    def launch(self, program: Program) -> "EndedJob":
        self.programs.append(program)
        run(program)
        return EndedJob(f"job-{len(self.programs)}")

    def collect_sink(self) -> "ListSink":
        return ListSink()

    def collect(self, program: Program, node: int) -> "ListResults":
        self.launch(program)
        (role, sink) = program.graph.nodes[node].functions[0]
        assert role == "sink" and isinstance(sink, ListSink)
        return ListResults(self, iter(sink.records))

    def dataframe_sink(self, schema: object, as_batches: bool = False) -> "ListSink":
        return ListSink()

    def arrow_source(self, table: object) -> Source:
        return arrow_source(table)

    def arrow_schema(self, schema: object, caller: str) -> Any:
        return arrow_schema(schema, f"{caller}()")

    def row_maker(self) -> Callable[[Sequence[str]], Any]:
        return RowMaker

    def batch_maker(self, schema: Any) -> Callable[[str], Callable[[list[object]], Any]]:
        return BatchMaker(schema)

    def to_dataframe(self, program: Program, node: int, schema: object) -> object:
        return (program, node, schema)

    def dataframe_source(
        self, dataframe: object, order_by: Sequence[str], partition_by: Sequence[str]
    ) -> Source:
        assert isinstance(dataframe, list)
        return ListOfRows(dataframe)

    def function_source(self, function: SourceFunction[Record]) -> Source:
        gathered = Gathered()
        function.run(gathered)
        return ListSource(gathered.records)

    def job_html(self, job: RunningJob) -> str:
        return f"<b>{job.job_id}</b>"

    def print_sink(self, sink_identifier: str | None) -> "ListSink":
        return ListSink(self.printed)


@dataclass
class EndedJob:
    job_id: str

    def status(self) -> JobStatus:
        return JobStatus.FINISHED

    def cancel(self) -> None:
        pass

    def wait(self) -> JobExecutionResult:
        return JobExecutionResult(self.job_id, 7)

    def metrics(self) -> Mapping[str, object]:
        return {"records": 1}

    def savepoint(self, directory: str | None, stop: Stop) -> Promise[str]:
        raise HeadgateError("the job has ended")


@dataclass
class ListResults:
    local_runtime: OneTaskRuntime
    records: Iterator[Record]

    def __iter__(self) -> "ListResults":
        return self

    def __next__(self) -> Record:
        return next(self.records)

    def abandon(self) -> None:
        """Reading on is impossible, and nothing runs here."""

    def close(self) -> None:
        self.local_runtime.closed += 1


@dataclass(frozen=True)
class ListSink(Sink):
    records: list[Record] = field(default_factory=list)

    def create_writer(self, context: OperatorContext) -> SinkWriter:
        return ListWriter(self.records)


class ListWriter(SinkWriter):
    def __init__(self, records: list[Record]) -> None:
        self.records = records

    def write(self, records: list[Record]) -> None:
        self.records += records


@dataclass(frozen=True)
class ListSource(Source):
    """A split for each record."""

    records: list[Record]
    bounded: bool = True

    def splits(self, parallelism: int) -> list[Record]:
        return self.records

    def open(self, split: object, position: object, context: OperatorContext) -> SplitReader:
        return ListReader([split])


class ListOfRows(ListSource):
    """In place of a DataFrame."""

    as_batches = False


class ListReader(SplitReader):
    def __init__(self, records: list[Record]) -> None:
        self.records = records

    def poll(self, limit: int) -> list[Record] | None:
        records, self.records = self.records[:limit], self.records[limit:]
        return records or None


class Gathered:
    def __init__(self) -> None:
        self.records: list[Record] = []

    def collect(self, element: Record) -> None:
        self.records.append(element)

    def collect_with_timestamp(self, element: Record, timestamp: int) -> None:
        self.records.append(element)


def run(program: Program) -> None:
    outputs: dict[int, Kept] = {}
    for node in program.graph.in_order():
        outputs[node.id] = Kept()
        operator = node.make()
        operator.set_up(typed(outputs[node.id], node.types))
        task = TaskInfo(program.name, node.name, 0, 1, parameters=program.parameters)
        try:
            operator.open(OperatorContext(node.name, task, lambda: 0))
            _feed(program.graph, node, operator, outputs)
            operator.finish()
        finally:
            operator.close()


def _feed(
    graph: StreamGraph, node: StreamNode, operator: Operator, outputs: "dict[int, Kept]"
) -> None:
    if isinstance(operator, SourceOperator):
        if node.discovery is not None:
            found = node.discovery.create(b"").discover()
            splits = tuple(pickled_splits(found))
            operator.obey(SplitsAssigned("run", "task", splits, False, True))
        while operator.poll() is not PollResult.ENDED:
            pass
    for edge in graph.inputs_of(node.id):
        operator.process(_travelling(graph, edge, outputs[edge.source]), edge.input)
    if not isinstance(operator, SourceOperator):
        operator.watermark_advanced(Watermark(MAX_WATERMARK_MS))
    for number in range(operator.inputs):
        operator.end_input(number)


def _travelling(graph: StreamGraph, edge: StreamEdge, output: "Kept") -> Bundle:
    pairs = output.sides.get(edge.tag, []) if edge.tag else output.pairs
    if edge.selected is not None:
        selectors = graph.nodes[edge.source].selectors
        pairs = [
            pair for pair in pairs if any(edge.selected.intersection(s(pair[0])) for s in selectors)
        ]
    times = [time_ms for _, time_ms in pairs]
    has_times = any(time_ms is not None for time_ms in times)
    return Bundle([record for record, _ in pairs], times if has_times else None)


def timed(bundle: Bundle) -> Iterator[tuple[Record, int | None]]:
    """Records with their timestamps."""
    return zip(bundle.records, bundle.timestamps or repeat(None))  # noqa: B905 - repeat has no end


class Kept:
    """An output that keeps everything."""

    def __init__(self) -> None:
        self.watermark_ms = 0
        self.pairs: list[tuple[Record, int | None]] = []
        """Records and their times."""
        self.sides: dict[str, list[tuple[Record, int | None]]] = {}

    def collect(self, bundle: Bundle) -> None:
        self.pairs += timed(bundle)

    def collect_side(self, tag: str, bundle: Bundle) -> None:
        self.sides.setdefault(tag, []).extend(timed(bundle))

    def emit_watermark(self, watermark: Watermark) -> None:
        pass

    def emit_status(self, status: StreamStatus) -> None:
        pass

    def emit_marker(self, marker: LatencyMarker) -> None:
        pass
