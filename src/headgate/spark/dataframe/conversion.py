"""DataFrames in and out of programs: the driver's side.

A program that reads DataFrames has them as the input of its barrier stage. One that ends in a
DataFrame is a transformation: nothing runs before an action, and each action is a run of its own
(``actions``). The coordinator keeps such a job until Java has forgotten the last DataFrame that is
derived from it (``LazyJobs``).

A chain of functions on batches, from one DataFrame to another, needs no exchange and no slots at
the same time: it runs in the partitions of its DataFrame. Law: such a job has as many tasks as its
parallelism asks for, or as many more as the user did not forbid; if it is not known for sure that
there are as many partitions, it takes the barrier stage.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headgate.api.program import Program
from headgate.base.errors import FrameInvalid
from headgate.connectors.dataframe.sink import DataFrameSink
from headgate.connectors.dataframe.source import DataFrameSource
from headgate.core.columns.functions import BatchFunction, Projection, RowFilter
from headgate.core.operators.one_input import ProcessOperator
from headgate.plan.execution_graph import place
from headgate.plan.job_graph import JobGraph, build_job_graph
from headgate.plan.stream_graph import NodeKind, StreamGraph
from headgate.spark.cluster import is_connect
from headgate.spark.dataframe.actions import Actions, keep_until_forgotten
from headgate.spark.dataframe.barrier_task import BarrierTask
from headgate.spark.dataframe.partition_task import PartitionTask
from headgate.spark.dataframe.plan import (
    OUTPUT_SCHEMA,
    FrameInput,
    by_position,
    input_plan,
    is_orderable,
    output_plan,
    unpacked_output,
)
from headgate.spark.dataframe.queries import function_of
from headgate.spark.dataframe.schema import TypeUnknown, check_types, read_schema, row_shape
from headgate.spark.executors import each
from headgate.spark.failures import install_error_conversion
from headgate.spark.job import PreparedJob
from headgate.spark.session import find_session, slots
from headgate.spark.submission import prepare, ship_code

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOTHING: Final = "nothing boolean"
"""The schema of a barrier stage whose records go elsewhere."""
log = logging.getLogger(__name__)

_UNSETTLED: Final = ("Exchange", "AdaptiveSparkPlan", "InMemoryTableScan", "Subquery")
"""A plan without nodes of these names is executed as it stands, and nothing runs before."""


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


def source_in_partitions(graph: StreamGraph, slots: int) -> DataFrameSource | None:
    """The one source of a job that can run in the partitions of its DataFrame; None: it cannot.

    ``slots``: as many tasks can Spark run at a time.
    """
    if (source := lone_source(graph)) is None:
        return None
    node = next(iter(graph.nodes.values()))
    count, wanted = partition_count(source.dataframe), node.parallelism
    if count is None or count < wanted:
        return None
    is_free = node.default_parallelism or wanted >= slots
    return source if is_free or count == wanted else None


def lone_source(graph: StreamGraph) -> DataFrameSource | None:
    """The source of a job that is one chain of functions on batches between two DataFrames.

    A function that is opened with its task is not among them: it is opened once for each of few
    tasks, not once for each of many partitions.
    """
    source: DataFrameSource | None = None
    for node in graph.nodes.values():
        given = [function for _, function in node.functions]
        if node.kind is NodeKind.SOURCE:
            if source is not None or not isinstance(given[0], DataFrameSource):
                return None
            source = given[0]
        elif node.kind is NodeKind.SINK:
            if not all(isinstance(each, DataFrameSink) and each.as_batches for each in given):
                return None
        elif not _needs_one_batch(node.make):
            return None
    if source is None or source.order_by or not source.as_batches:
        return None
    return source if len(build_job_graph(graph).vertices) == 1 else None


def _needs_one_batch(make: object) -> bool:
    """Whether an operator looks at nothing but the batch at hand."""
    if not (isinstance(make, partial) and make.func is ProcessOperator):
        return False
    function = make.args[0]
    if isinstance(function, BatchFunction):
        return not function.has_life_cycle
    return isinstance(function, RowFilter | Projection)


def partition_count(frame: "DataFrame") -> int | None:
    """How many partitions a DataFrame surely has when an action runs; None: who knows.

    Nothing is executed for the answer. After most shuffles Spark decides at run time.
    """
    if is_connect(frame.sparkSession):
        return None
    try:
        return _count(frame._jdf.queryExecution().executedPlan())
    except Exception as error:  # another version of Spark, or a plan that cannot be executed
        log.debug("the partitions of a DataFrame are not known: %s", error)
        return None


def _count(plan: Any) -> int | None:
    """The partitions of a physical plan; after a shuffle Spark may join them at run time."""
    if _is_settled(plan):
        return int(plan.execute().getNumPartitions())
    kind = str(plan.getClass().getSimpleName())
    if kind == "AdaptiveSparkPlanExec":
        if plan.isFinalPlan():
            return _declared(plan.executedPlan())
        return _count(plan.executedPlan())  # as it is before any stage has run
    if kind == "InMemoryTableScanExec":
        return _count(plan.relation().cachedPlan())
    if kind == "ShuffleExchangeExec":
        is_fixed = str(plan.shuffleOrigin().toString()) == "REPARTITION_BY_NUM"
        return _declared(plan) if is_fixed else None
    children = plan.children()
    if int(children.size()) != 1:
        return None
    below, own = _count(children.apply(0)), _declared(plan)
    return below if below is None or own is None else min(below, own)


def _is_settled(plan: Any) -> bool:
    kind = str(plan.getClass().getSimpleName())
    if any(word in kind for word in _UNSETTLED) or plan.subqueries().nonEmpty():
        return False
    return all(map(_is_settled, each(plan.children().iterator())))


def _declared(plan: Any) -> int | None:
    return int(plan.outputPartitioning().numPartitions()) or None
