"""The queries of one Spark application: what is in their plans, and when they end.

Workers see the number of their query among the properties of their Spark task. A classic session
is asked through Java: Spark keeps the plan of each query that runs, and its listener bus tells when
one ends. With Spark Connect a query is an operation (``connect_operations``). Law: asking runs
nothing, and what Spark does not tell, such as another version of it, means: all rows are wanted,
the job is not in the plan, the query has ended.
"""

import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from headgate.spark.cluster import cluster_of, is_connect
from headgate.spark.connect_operations import ConnectQueries
from headgate.spark.dataframe.row_limits import LIMIT, OFFSET, PlanNode, limit_of
from headgate.spark.executors import each

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

MOST_NODES: Final = 300
"""A larger plan is not looked through; each node costs some calls to Java."""
MOST_EVENTS: Final = 10_000
"""As many as Spark's own queue holds; one that is lost costs a look at the query."""
_ENDED: Final = "SparkListenerSQLExecutionEnd"

_T = TypeVar("_T")


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
    """Those of the application of a session."""
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
    """Those of a plan with its subqueries and what is cached of it, as many as are looked at."""
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
    """Of the function that a node of a plan runs on batches; None: it runs none."""
    kind = node.getClass().getSimpleName()
    if kind == "MapInArrow":
        return int(node.functionExpr().resultId().id())
    return int(node.func().resultId().id()) if kind == "MapInArrowExec" else None


def function_of(stage: Any) -> tuple[Any, int] | None:
    """Of a DataFrame that is the stage of a job: Java's function object, and its number.

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
