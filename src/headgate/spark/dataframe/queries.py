"""The queries of one Spark application: what is in their plans, and when they end.

Workers see the number of their query among the properties of their Spark task. A classic session
is asked through Java: Spark keeps the plan of each query that runs, and its listener bus tells when
one ends. With Spark Connect a query is an operation, whose plan the server explains in words. Law:
asking runs nothing, has a bound in time, and what Spark does not tell, such as another version of
it, means: all rows are wanted, the job is not in the plan, the query has ended.

``limit(5)``, ``take``, ``first``, ``show`` and ``isEmpty`` are limits in the plan of the query that
the action runs. Law: a number of rows is given only if no other part of the query can need more.
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from headgate.spark.cluster import cluster_of, is_connect
from headgate.spark.connect_operations import on_operation_ended, operations
from headgate.spark.executors import each

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

MOST_NODES: Final = 300
"""A larger plan is not looked through; in a classic session each node costs some calls to Java."""
MOST_EVENTS: Final = 10_000
"""As many as Spark's own queue holds; one that is lost costs a look at the query."""
_ENDED: Final = "SparkListenerSQLExecutionEnd"
EXPLAIN_S: Final = 5.0
_OPTIMIZED: Final = "== Optimized Logical Plan ==\n"
_JOB: Final = "MapInArrow headgate("
"""How the line of a job's stage begins in a plan."""
_LINE: Final = re.compile(r"(?:[: ] {2})*(?:[:+]- )?(?=\w)")
"""What stands before a node; three characters for each node above it."""
_SUBQUERY: Final = re.compile(r"\b(?:subquery|exists|list)#\d")
_SHOWN: Final = ("show_string", "html_string")
"""Relations for ``show``: the server runs their input as soon as it analyzes them."""
_WRITES: Final = ("write_operation", "write_operation_v2")
_EXPLAINED: Final = frozenset(
    {
        "read",
        "project",
        "filter",
        "join",
        "set_op",
        "sort",
        "limit",
        "aggregate",
        "sql",
        "local_relation",
        "offset",
        "deduplicate",
        "range",
        "subquery_alias",
        "repartition",
        "to_df",
        "with_columns_renamed",
        "drop",
        "with_columns",
        "hint",
        "to_schema",
        "repartition_by_expression",
        "map_partitions",
        "cached_local_relation",
        "chunked_cached_local_relation",
    }
)
"""What a server plans without running any of it."""
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
        "Relation",  # the same where a server explains its plan
        "HiveTableRelation",
        "DataSourceV2ScanRelation",
        "RelationV2",
    }
)
"""Leaves that hold no other plan, in which the job could stand a second time."""
LIMIT: Final = "GlobalLimit"
OFFSET: Final = "Offset"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A node of a query's plan, as far as it matters here."""

    kind: str
    """The name of Spark's class."""
    count: int | None = None
    """The number of rows of a limit or an offset; None: it is no literal number."""
    is_job: bool = False
    """It is the job's stage; what is below does not matter."""
    children: "list[PlanNode]" = field(default_factory=list)


class Queries(Protocol):
    """Any thread may ask; one waits."""

    def rows_wanted(self, query: str, job: int | None) -> int | None:
        """How many rows of a job are enough for a query that runs; None: it wants all.

        ``job``: the number that ``function_of`` tells.
        """

    def holds(self, query: str, job: int) -> bool:
        """Whether a query that runs executes a job."""

    def has_ended(self, query: str) -> bool:
        """Whether a query that has run is over."""

    def running(self) -> set[str]:
        """All that run, and those that Spark is just planning."""

    def await_end(self, timeout_s: float) -> str:
        """Wait for the end of a query, and say which; empty: none has ended in this time."""

    def close(self) -> None:
        """Wait no more."""


def queries_of(session: "SparkSession") -> Queries:
    """The queries of the application of a session."""
    return ConnectQueries() if is_connect(session) else ClassicQueries(session)


class ClassicQueries:
    """See ``Queries``; a listener of Spark's that is opened with the first wait."""

    def __init__(self, session: "SparkSession") -> None:
        self._java = cluster_of(session).java
        self._context: Any = session.sparkContext._jsc.sc()
        self._listener: Any = None
        self._events: Any = None

    def rows_wanted(self, query: str, job: int | None) -> int | None:
        def read() -> int | None:
            plan = self._plan_of(query)
            return None if plan is None or job is None else limit_of_plan(plan, job)

        return _asked(read, None, query)

    def holds(self, query: str, job: int) -> bool:
        def read() -> bool:
            plan = self._plan_of(query)
            return plan is not None and any(_number_of(node) == job for node in _nodes(plan))

        return _asked(read, False, query)

    def has_ended(self, query: str) -> bool:
        return _asked(lambda: self._execution(query) is None, True, query)

    def running(self) -> set[str]:
        def read() -> set[str]:
            whole = getattr(self._java.org.apache.spark.sql.execution, "SQLExecution$")
            executions = getattr(whole, "MODULE$").executionIdToQueryExecution()
            return {str(query) for query in executions.keySet().toArray()}

        return _asked(read, set(), "?")

    def await_end(self, timeout_s: float) -> str:
        until = time.monotonic() + timeout_s
        try:
            if self._listener is None:
                self._listen()
            unit = self._java.java.util.concurrent.TimeUnit.MILLISECONDS
            while (left_ms := int(1000 * (until - time.monotonic()))) > 0:
                event = self._events.poll(left_ms, unit)
                if event is not None and event.getClass().getSimpleName() == _ENDED:
                    return str(event.executionId())
        except Exception as error:  # Java is gone, or has no such classes
            log.debug("Spark does not tell which queries end: %s", error)
            time.sleep(max(0.0, until - time.monotonic()))
        return ""

    def close(self) -> None:
        if self._listener is not None:
            _asked(lambda: self._context.removeSparkListener(self._listener), None, "?")

    def _listen(self) -> None:
        """Have Java put the events of queries into a queue of its own; it calls no Python."""
        loader = self._context.getClass().getClassLoader()
        kind = loader.loadClass("org.apache.spark.scheduler.SparkListenerInterface")
        self._events = self._java.java.util.concurrent.LinkedBlockingQueue(MOST_EVENTS)
        handler = self._java.java.beans.EventHandler
        self._listener = handler.create(kind, self._events, "offer", "", "onOtherEvent")
        self._context.addSparkListener(self._listener)

    def _execution(self, query: str) -> Any:
        queries = self._java.org.apache.spark.sql.execution.SQLExecution
        return queries.getQueryExecution(int(query))

    def _plan_of(self, query: str) -> Any:
        """As Spark has optimized it; None: the query does not run."""
        execution = self._execution(query)
        return None if execution is None else execution.optimizedPlan()


def limit_of_plan(plan: Any, job: int) -> int | None:
    """How many rows of a job are enough for a plan of Java's; None: it wants all."""
    if plan.subqueriesAll().nonEmpty():
        return None
    root = _node(plan, job, [MOST_NODES])
    return None if root is None else limit_of(root)


def _asked(ask: Callable[[], _T], otherwise: _T, query: str) -> _T:
    try:
        return ask()
    except Exception as error:  # another version of Spark, or Java is gone
        log.debug("query %s cannot be looked up: %s", query, error)
        return otherwise


def _node(plan: Any, job: int, left: list[int]) -> PlanNode | None:
    """``left``: how many more nodes are looked at; None: there are more."""
    left[0] -= 1
    if left[0] < 0:
        return None
    kind = str(plan.getClass().getSimpleName())
    if _number_of(plan) == job:
        return PlanNode(kind, is_job=True)
    count = None
    if kind in (LIMIT, OFFSET):
        given = plan.limitExpr() if kind == LIMIT else plan.offsetExpr()
        is_literal = given.getClass().getSimpleName() == "Literal"
        count = given.value() if is_literal and isinstance(given.value(), int) else None
    node = PlanNode(kind, count)
    for below in each(plan.children().iterator()):
        child = _node(below, job, left)
        if child is None:
            return None
        node.children.append(child)
    return node


def _nodes(plan: Any) -> Iterator[Any]:
    """The nodes of a plan with its subqueries and what is cached of it, at most MOST_NODES."""
    left = [plan]
    for _ in range(MOST_NODES):
        if not left:
            return
        node = left.pop()
        yield node
        if node.getClass().getSimpleName() == "AdaptiveSparkPlanExec":
            left.append(node.executedPlan())
        left += [*each(node.children().iterator()), *each(node.innerChildren().iterator())]


def _number_of(node: Any) -> int | None:
    """The number of the function that a plan's node runs on batches; None: it runs none."""
    kind = node.getClass().getSimpleName()
    if kind == "MapInArrow":
        return int(node.functionExpr().resultId().id())
    return int(node.func().resultId().id()) if kind == "MapInArrowExec" else None


def function_of(stage: Any) -> tuple[Any, int] | None:
    """Java's function object, and its number, of a DataFrame that is the stage of a job.

    With Spark Connect there is no object, and the number is the plan's. None: this version of Spark
    does not tell.
    """
    try:
        if hasattr(stage, "_plan"):
            return None, int(stage._plan._plan_id)
        node = stage._jdf.queryExecution().analyzed()
        number = _number_of(node)
        return None if number is None else (node.functionExpr().func(), number)
    except Exception as error:
        log.debug("Spark does not tell the function of a stage: %s", error)
        return None


class ConnectQueries:
    """The operations that clients of this process wait for; see ``Queries``.

    The protocol gives an optimized plan in words only. What the client has sent names views and SQL
    that only the server can look up, and does not say what is cached.
    """

    def __init__(self) -> None:
        self._inbox: SimpleQueue[str] | None = None  # opened with the first wait

    def rows_wanted(self, query: str, job: int | None) -> int | None:
        """``job`` does not matter: a plan with two is left alone."""
        root = explained_plan(_optimized_plan(query))
        return None if root is None else limit_of(root)

    def holds(self, query: str, job: int) -> bool:
        """Views hide what they hold."""
        if (found := operations.get(query)) is None:
            return False
        return any(part.common.plan_id == job for part in _relations(_whole(found.plan)))

    def has_ended(self, query: str) -> bool:
        return query not in operations

    def running(self) -> set[str]:
        return set(operations)

    def await_end(self, timeout_s: float) -> str:
        if self._inbox is None:
            self._inbox = SimpleQueue()
            on_operation_ended.append(self._inbox.put)
        try:
            return self._inbox.get(timeout=timeout_s)
        except Empty:
            return ""

    def close(self) -> None:
        if self._inbox is not None:
            on_operation_ended.remove(self._inbox.put)


def explained_plan(text: str) -> PlanNode | None:
    """A plan with a line for each node, and one job in it; None: it is another text."""
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
        count = int(rest) if kind in (LIMIT, OFFSET) and rest.isdecimal() else None
        node = PlanNode(kind.partition("[")[0], count, said.startswith(_JOB))
        del path[depth:]
        if path:
            path[-1].children.append(node)
        path.append(node)
    return path[0] if path else None


def _optimized_plan(operation: str) -> str:
    """The plan of a running operation as its server has optimized it; nothing: it is not known."""
    found = operations.get(operation)
    plan = None if found is None else _explained(_whole(found.plan))
    if found is None or plan is None:
        return ""
    client, said = found.client, list[str]()

    def explain() -> None:
        try:
            said.append(client.explain_string(plan, "extended"))
        except Exception as error:
            log.debug("operation %s cannot be explained: %s", operation, error)

    thread = threading.Thread(target=explain, name="headgate-explain", daemon=True)
    thread.start()
    thread.join(EXPLAIN_S)
    text = said[0].partition(_OPTIMIZED)[2] if said else ""
    return text.partition("\n== ")[0]


def _whole(plan: Any) -> Any:
    """Clients of newer versions compress a large plan."""
    if plan.WhichOneof("op_type") != "compressed_operation":
        return plan
    import zstandard
    from pyspark.sql.connect import proto

    packed, whole = plan.compressed_operation, proto.Plan()
    data = zstandard.decompress(packed.data)
    is_command = packed.op_type == packed.OpType.OP_TYPE_COMMAND
    (whole.command if is_command else whole.root).ParseFromString(data)
    return whole


def _explained(plan: Any) -> Any:
    """What to have explained instead of a plan: the rows that it wants; None: it is not known."""
    from pyspark.sql.connect import proto

    wanted = proto.Plan()
    if plan.WhichOneof("op_type") == "command":
        kind = plan.command.WhichOneof("command_type")
        if kind not in _WRITES:
            return None
        wanted.root.CopyFrom(getattr(plan.command, kind).input)
    elif (kind := plan.root.WhichOneof("rel_type")) in _SHOWN:
        shown = getattr(plan.root, kind)
        wanted.root.limit.input.CopyFrom(shown.input)
        wanted.root.limit.limit = shown.num_rows + 1  # to see whether there are more
    else:
        wanted.root.CopyFrom(plan.root)
    kinds = {relation.WhichOneof("rel_type") for relation in _relations(wanted)}
    return wanted if kinds <= _EXPLAINED else None


def _relations(message: Any) -> Iterator[Any]:
    """All relations within a message."""
    if message.DESCRIPTOR.name == "Relation":
        yield message
    for kind, value in message.ListFields():
        if kind.message_type is not None and not kind.message_type.GetOptions().map_entry:
            for part in (value,) if hasattr(value, "ListFields") else value:
                yield from _relations(part)


def limit_of(root: PlanNode) -> int | None:
    """How many rows of the job are enough for this plan; None: it wants all."""
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
    if node.kind == LIMIT:
        return node.count if rows is None or node.count is None else min(rows, node.count)
    if node.kind == "LocalLimit":  # Spark has made it of the one above, or it counts by partition
        return rows
    if node.kind == OFFSET:
        return None if rows is None or node.count is None else rows + node.count
    return rows if node.kind in KEEPS_ROWS else None
