"""DataFrames in and out of programs: the driver's side.

A program that reads DataFrames has them as the input of its barrier stage. One that ends in a
DataFrame is a transformation: nothing runs before an action, and each action is a run of its own
(``actions``). The coordinator keeps such a job until Java has forgotten the last DataFrame that is
derived from it (``lazy_jobs``).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from headgate.api.program import Program
from headgate.base.errors import FrameInvalid
from headgate.connectors.dataframe.sink import DataFrameSink
from headgate.connectors.dataframe.source import DataFrameSource
from headgate.plan.execution_graph import place
from headgate.plan.job_graph import JobGraph, build_job_graph
from headgate.spark.dataframe.action_errors import install_error_conversion
from headgate.spark.dataframe.actions import Actions
from headgate.spark.dataframe.barrier_task import BarrierTask
from headgate.spark.dataframe.lazy_jobs import keep_until_forgotten
from headgate.spark.dataframe.packing import OUTPUT_SCHEMA, unpacked_output
from headgate.spark.dataframe.partition_task import PartitionTask
from headgate.spark.dataframe.partitions import source_in_partitions
from headgate.spark.dataframe.plan import (
    FrameInput,
    by_position,
    input_plan,
    is_orderable,
    output_plan,
)
from headgate.spark.dataframe.queries import function_of
from headgate.spark.dataframe.schema import TypeUnknown, check_types, read_schema, row_shape
from headgate.spark.job import PreparedJob
from headgate.spark.session import find_session, slots
from headgate.spark.submission import prepare, ship_code

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOTHING: Final = "nothing boolean"
"""The schema of a barrier stage whose records go elsewhere."""


def dataframe_source(
    dataframe: object, order_by: Sequence[str] = (), partition_by: Sequence[str] = ()
) -> DataFrameSource:
    """The rows of a DataFrame as a source; raises FrameInvalid."""
    from pyspark.sql import DataFrame

    if not isinstance(dataframe, DataFrame):
        raise FrameInvalid(
            f"was given a {type(dataframe).__module__}.{type(dataframe).__name__}; "
            f"give a Spark DataFrame, for instance spark.createDataFrame(…)"
        )
    if dataframe.isStreaming:
        raise FrameInvalid("was given a streaming DataFrame; give one that ends")
    if not dataframe.columns:
        raise FrameInvalid("was given a DataFrame without columns")
    try:
        check_types(dataframe.schema)
    except TypeUnknown as unknown:
        raise FrameInvalid(
            f"was given a DataFrame whose column {unknown.path!r} {unknown.problem}"
        ) from None
    if partition_by and not order_by:
        raise FrameInvalid("was given partition_by without order_by; say in which order, too")
    places = _places(dataframe, order_by, "order_by")
    parts = _places(dataframe, partition_by, "partition_by")
    return DataFrameSource(dataframe, dataframe.columns, places, parts)


def _places(dataframe: "DataFrame", names: Sequence[str], what: str) -> list[int]:
    """Where these columns are; refuses those that Spark cannot compare."""
    columns = list(dataframe.columns)
    for name in names:
        if columns.count(name) != 1:
            problem = "which is there more than once" if name in columns else "which is not there"
            raise FrameInvalid(
                f"was given {what}={name!r}, {problem}; the columns are {', '.join(columns)}"
            )
        if not is_orderable(dataframe.schema[columns.index(name)].dataType):
            kind = dataframe.schema[columns.index(name)].dataType.simpleString()
            raise FrameInvalid(f"was given {what}={name!r}, a {kind}, which has no order")
    return [columns.index(name) for name in names]


def to_dataframe(program: Program, node: int) -> "DataFrame":
    """The lazy DataFrame of what comes to the sink of this node."""
    (sink,) = [sink for _, sink in program.graph.nodes[node].functions]
    assert isinstance(sink, DataFrameSink)
    needed = place(build_job_graph(program.graph)).workers
    found = find_session(program.configuration, needed=needed)
    session = next((frame.sparkSession for frame in _dataframes(program)), found)
    schema = read_schema(sink.schema)
    sink.shape = row_shape(session, schema)
    install_error_conversion(session)
    source = source_in_partitions(program.graph, slots(session).total)
    tasks = None if source is None else program.graph.nodes[node].parallelism
    actions = Actions(session, program, tasks)
    prepared = prepare(program, actions)
    try:
        if source is not None:
            rows = result = partition_plan(prepared, program, source, sink, schema)
        else:
            rows = barrier_plan(prepared, program, schema, sink.token, packs=sink.as_batches)
            result = output_plan(rows, prepared.slots)
            if sink.as_batches:
                result = unpacked_output(result, schema)
        function, number = function_of(rows) or (None, None)
        actions.planned(prepared, number)
    except BaseException:
        prepared.close()
        raise
    keep_until_forgotten(prepared, function, actions)
    return result


def partition_plan(
    prepared: PreparedJob,
    program: Program,
    source: DataFrameSource,
    sink: DataFrameSink,
    schema: Any,
) -> "DataFrame":
    """A job without exchanges over the partitions of its DataFrame: no barrier, no shuffle."""
    code = ship_code(program, prepared.graph)
    contact, files = prepared.public_contact(""), prepared.job_files
    process = PartitionTask(contact, program.name, code, source.token, sink.token, files)

    def headgate(batches: Iterable[Any]) -> Iterator[Any]:  # its name stands in Spark's plan
        return process(batches)

    profile: Any = prepared.profile
    return by_position(source.dataframe).mapInArrow(headgate, schema, profile=profile)


def barrier_plan(
    prepared: PreparedJob,
    program: Program,
    schema: Any,
    outlet: str | None,
    stage: str = "",
    *,
    packs: bool = False,
) -> "DataFrame":
    """The barrier stage with the task managers of a job, and its DataFrames as input.

    ``packs``: its rows are values that hold batches of the schema.
    """
    inputs = list(_inputs(program, prepared.graph))
    tokens = tuple(source.token for source, _ in inputs)
    contact = prepared.public_contact(stage)
    process = BarrierTask(contact, tokens, outlet, prepared.job_files, packs)
    frames = [frame for _, frame in inputs]
    session = frames[0].dataframe.sparkSession if frames else prepared.session

    def headgate(batches: Iterable[Any]) -> Iterator[Any]:  # its name stands in Spark's plan
        return process(batches)

    plan = input_plan(session, frames, prepared.slots)
    profile: Any = prepared.profile
    made = OUTPUT_SCHEMA if packs else schema
    return plan.mapInArrow(headgate, made, barrier=True, profile=profile)


def _dataframes(program: Program) -> "Iterator[DataFrame]":
    functions = (function for node in program.graph.nodes.values() for function in node.functions)
    for _, source in functions:
        if isinstance(source, DataFrameSource):
            yield source.dataframe


def _inputs(program: Program, graph: JobGraph) -> Iterator[tuple[DataFrameSource, FrameInput]]:
    placement = place(graph)
    vertices = {op.id: vertex for vertex in graph.vertices for op in vertex.chain.operators}
    for node in program.graph.nodes.values():
        for _, source in node.functions:
            if isinstance(source, DataFrameSource):
                vertex = vertices[node.id]
                first = placement.group(vertex.group).first_worker
                slots = range(first, first + vertex.parallelism)
                order = (source.order_by, source.partition_by)
                yield source, FrameInput(source.dataframe, slots, *order, source.as_batches)
