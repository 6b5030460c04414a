"""Which jobs can run in the partitions of their DataFrame, as Spark's own functions do.

A chain of functions on batches, from one DataFrame to another, needs nothing of other tasks: no
exchange, no slots at the same time, and so no barrier stage with a shuffle on both sides. Law: such
a job has as many tasks as its parallelism asks for, or as many more as the user did not forbid; if
it is not known for sure that there are as many partitions, it takes the barrier stage, whose
shuffle spreads the rows.
"""

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headgate.connectors.dataframe.sink import DataFrameSink
from headgate.connectors.dataframe.source import DataFrameSource
from headgate.core.columns.functions import BatchFunction, Projection, RowFilter
from headgate.core.operators.process import ProcessOperator
from headgate.plan.job_graph import build_job_graph
from headgate.plan.stream_graph import NodeKind, StreamGraph
from headgate.spark.cluster import is_connect
from headgate.spark.executors import each

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

_UNSETTLED: Final = ("Exchange", "AdaptiveSparkPlan", "InMemoryTableScan", "Subquery")
"""A plan without nodes of these names is executed as it stands, and nothing runs before."""


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

    Nothing is executed for the answer. Behind most shuffles Spark decides at run time.
    """
    if is_connect(frame.sparkSession):
        return None
    try:
        return _count(frame._jdf.queryExecution().executedPlan())
    except Exception as error:  # another version of Spark, or a plan that cannot be executed
        log.debug("the partitions of a DataFrame are not known: %s", error)
        return None


def _count(plan: Any) -> int | None:
    """Of a physical plan; the partitions behind a shuffle may be put together at run time."""
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
