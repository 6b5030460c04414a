"""The operations of Spark Connect as queries, and their plans as the server explains them.

The server has the optimized plan, and its protocol gives it in words only; what the client has sent
names views and SQL that only the server can look up, and does not say what is cached. Law: a plan
in other words than these means that all rows are wanted.
"""

import re
from queue import Empty, SimpleQueue
from typing import Final

from headgate.spark.connect_operations import (
    is_running,
    operation_holds,
    operations_ended,
    optimized_plan,
    running_queries,
)
from headgate.spark.dataframe.row_limits import LIMIT, OFFSET, PlanNode, limit_of

MOST_LINES: Final = 300
_JOB: Final = "MapInArrow headgate("
"""How the line of a job's stage begins."""
_LINE: Final = re.compile(r"(?:[: ] {2})*(?:[:+]- )?(?=\w)")
"""What stands before a node; three characters for each node above it."""
_SUBQUERY: Final = re.compile(r"\b(?:subquery|exists|list)#\d")


class ConnectQueries:
    """See ``Queries``; the client notes what it waits for."""

    def __init__(self) -> None:
        self._ended: SimpleQueue[str] | None = None  # opened with the first wait

    def rows_wanted(self, query: str, job: int | None) -> int | None:
        text = optimized_plan(query)
        root = None if text is None else explained_plan(text)
        return None if root is None else limit_of(root)

    def holds(self, query: str, job: int) -> bool:
        return operation_holds(query, job)

    def has_ended(self, query: str) -> bool:
        return not is_running(query)

    def running(self) -> set[str]:
        return running_queries()

    def await_end(self, timeout_s: float) -> str:
        if self._ended is None:
            self._ended = SimpleQueue()
            operations_ended.append(self._ended.put)
        try:
            return self._ended.get(timeout=timeout_s)
        except Empty:
            return ""

    def close(self) -> None:
        if self._ended is not None:
            operations_ended.remove(self._ended.put)


def explained_plan(text: str) -> PlanNode | None:
    """A plan with a line for each node, and one job in it; None: it is another text."""
    lines = text.strip("\n").splitlines()
    if len(lines) > MOST_LINES or text.count(_JOB) != 1 or _SUBQUERY.search(text):
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
