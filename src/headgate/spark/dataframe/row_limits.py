"""How many rows an action on a DataFrame wants of the job behind it, as Spark's plan says.

``limit(5)``, ``take``, ``first``, ``show`` and ``isEmpty`` are limits in the plan of the query that
the action runs. Workers see the number of that query, or of the operation of Spark Connect, among
the properties of their Spark task. The driver looks its plan up, as Java's objects or as the text
that a Connect server explains it with. Law: a number is given only if no other part of the query
can need more rows of the job; whatever is not known for sure to pass a limit on means all rows.
"""

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headgate.spark.cluster import cluster_of
from headgate.spark.connect_operations import is_running, operation_holds, optimized_plan
from headgate.spark.spark_task import spark_task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

QUERY: Final = "spark.sql.execution.id"
_BETWEEN: Final = "@"
_PROCESS: Final = "#"
MOST_NODES: Final = 300
"""A larger plan is not looked through; each node costs some calls to Java."""
KEEPS_ROWS: Final = frozenset(
    {
        "Project",
        "SubqueryAlias",
        "Repartition",
        "RepartitionByExpression",
        "RebalancePartitions",
        "Union",
        "BatchEvalPython",
        "ArrowEvalPython",
    }
)
"""Nodes with a row for each row that they get: who wants some of theirs wants as many of these."""
PLAIN_LEAVES: Final = frozenset(
    {
        "Range",
        "LocalRelation",
        "OneRowRelation",
        "LogicalRelation",
        "Relation",  # the same in words
        "HiveTableRelation",
        "DataSourceV2ScanRelation",
        "RelationV2",
    }
)
"""Leaves that hold no other plan, in which the job could stand a second time."""


_LIMITS: Final = ("GlobalLimit", "Offset")
_JOB: Final = "MapInArrow headgate("
"""How a plan in words begins the line of a job's stage."""
_LINE: Final = re.compile(r"(?:[: ] {2})*(?:[:+]- )?(?=\w)")
"""What stands before a node; three characters for each node above it."""
_SUBQUERY: Final = re.compile(r"\b(?:subquery|exists|list)#\d")


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A node of a query's plan, as far as it matters here."""

    kind: str
    """The name of Spark's class."""
    count: int | None = None
    """Of a limit or an offset; None: it is no plain number."""
    is_job: bool = False
    """It is the job's stage; what is below does not matter."""
    children: "list[PlanNode]" = field(default_factory=list)


def stage_name(stage: str) -> str:
    """In a worker: the stage of its Spark task, and the query that it is a part of, if any."""
    query = spark_task().getLocalProperty(QUERY)
    return f"{stage}{_BETWEEN}{query}" if query else stage


def process_name(stage: str) -> str:
    """The same as the beginning of a name for one of the processes that work for the stage."""
    return f"{stage_name(stage)}{_PROCESS}"


def stage_of(name: str) -> str:
    """Of a name that a worker has made: the stage, and its operation of Spark Connect, if any."""
    return name.partition(_PROCESS)[0].partition(_BETWEEN)[0]


def query_of(name: str) -> str:
    """The query, or operation of Spark Connect, that the stage is a part of; empty: none."""
    stage, _, query = name.partition(_PROCESS)[0].partition(_BETWEEN)
    return stage.partition(":")[2] or query


def stage_number(name: str) -> int:
    """The number of the stage alone."""
    return int(stage_of(name).partition(":")[0])


def rows_wanted(session: "SparkSession", name: str, function: int | None) -> int | None:
    """How many rows of a job are enough for the query of this stage; None: it wants all.

    ``function``: the number that Spark has given to the function of the job's stage, if it tells.
    """
    query = query_of(name)
    if not query:
        return None
    try:
        if (java := cluster_of(session).java) is None:
            text = optimized_plan(query)
            return None if text is None else limit_of_text(text)
        queries = java.org.apache.spark.sql.execution.SQLExecution
        execution = queries.getQueryExecution(int(query))
        if execution is None or function is None:
            return None
        return limit_of(execution.optimizedPlan(), function)
    except Exception as error:  # whatever another version of Spark has changed: all rows are right
        log.debug("the plan of query %s cannot be read: %s", query, error)
        return None


def is_behind(session: "SparkSession", query: str, number: int) -> bool:
    """Whether a query that runs executes the job with this number, which ``function_of`` tells."""
    try:
        if (java := cluster_of(session).java) is None:
            return operation_holds(query, number)
        queries = java.org.apache.spark.sql.execution.SQLExecution
        execution = queries.getQueryExecution(int(query))
        text = "" if execution is None else str(execution.optimizedPlan().toString())
        return re.search(rf"{re.escape(_JOB)}.*\)#{number}\b", text) is not None
    except Exception as error:
        log.debug("the plan of query %s cannot be read: %s", query, error)
        return False


def has_ended(session: "SparkSession", query: str) -> bool:
    """Whether a query, or operation of Spark Connect, that has run is over."""
    try:
        if (java := cluster_of(session).java) is None:
            return not is_running(query)
        queries = java.org.apache.spark.sql.execution.SQLExecution
        return queries.getQueryExecution(int(query)) is None
    except Exception as error:  # Java may be gone, and its queries with it
        log.debug("query %s cannot be looked up: %s", query, error)
        return True


def next_query(session: "SparkSession") -> int | None:
    """A number above those of all queries that have begun; None: queries have no numbers."""
    try:
        if (java := cluster_of(session).java) is None:
            return None
        return int(java.org.apache.spark.sql.execution.SQLExecution.nextExecutionId())
    except Exception as error:
        log.debug("Spark does not number its queries: %s", error)
        return None


def limit_of(plan: Any, function: int) -> int | None:
    """The same for a plan of Java's."""
    if plan.subqueriesAll().nonEmpty():
        return None
    root = _java_node(plan, function, [MOST_NODES])
    return None if root is None else _limit_of(root)


def limit_of_text(text: str) -> int | None:
    """The same for a plan in words, with a line for each node; one job alone may be in it."""
    lines = text.strip("\n").splitlines()
    if len(lines) > MOST_NODES or text.count(_JOB) != 1 or _SUBQUERY.search(text):
        return None
    path: list[PlanNode] = []
    for line in lines:
        prefix = _LINE.match(line)
        depth = 0 if prefix is None else prefix.end() // 3
        if prefix is None or depth > len(path) or (path and not depth):
            return None  # a text of the user's, with lines of its own
        said = line[prefix.end() :]
        kind, _, rest = said.partition(" ")
        count = int(rest) if kind in _LIMITS and rest.isdecimal() else None
        node = PlanNode(kind.partition("[")[0], count, said.startswith(_JOB))
        del path[depth:]
        if path:
            path[-1].children.append(node)
        path.append(node)
    return _limit_of(path[0]) if path else None


def _limit_of(root: PlanNode) -> int | None:
    found = list(_wanted(root, None))
    wanted = [rows for rows in found if rows is not None]
    return max(wanted) if wanted and len(wanted) == len(found) else None


def _wanted(node: PlanNode, rows: int | None) -> Iterator[int | None]:
    """For each place at which the job stands, or may, below a node that is to give ``rows``."""
    if node.is_job:
        yield rows
    elif not node.children:
        if node.kind not in PLAIN_LEAVES:
            yield None
    else:
        below = _below(node, rows)
        for child in node.children:
            yield from _wanted(child, below)


def _below(node: PlanNode, rows: int | None) -> int | None:
    """How many rows the children have to give."""
    if node.kind == "GlobalLimit":
        return node.count if rows is None or node.count is None else min(rows, node.count)
    if node.kind == "LocalLimit":  # Spark has made it of the one above, or it counts by partition
        return rows
    if node.kind == "Offset":
        return None if rows is None or node.count is None else rows + node.count
    return rows if node.kind in KEEPS_ROWS else None


def _java_node(plan: Any, function: int, left: list[int]) -> PlanNode | None:
    """``left``: how many more nodes are looked at; None: there are more."""
    left[0] -= 1
    if left[0] < 0:
        return None
    kind = str(plan.getClass().getSimpleName())
    if kind == "MapInArrow" and _function_of(plan) == function:
        return PlanNode(kind, is_job=True)
    count = None
    if kind in _LIMITS:
        count = _literal(plan.limitExpr() if kind == "GlobalLimit" else plan.offsetExpr())
    node, children = PlanNode(kind, count), plan.children()
    for place in range(children.size()):
        child = _java_node(children.apply(place), function, left)
        if child is None:
            return None
        node.children.append(child)
    return node


def _literal(expression: Any) -> int | None:
    text = str(expression.toString())
    return int(text) if text.isdecimal() else None


def _function_of(node: Any) -> int:
    return int(node.functionExpr().resultId().id())


def function_of(stage: Any) -> tuple[Any, int] | None:
    """Of a DataFrame that is a barrier stage: Java's function object, and its number.

    With Spark Connect there is no object, and the number is the plan's. None: this version of Spark
    does not tell.
    """
    try:
        if hasattr(stage, "_plan"):
            return None, int(stage._plan._plan_id)
        node = stage._jdf.queryExecution().analyzed()
        return node.functionExpr().func(), _function_of(node)
    except Exception as error:
        log.debug("Spark does not tell the function of a stage: %s", error)
        return None
