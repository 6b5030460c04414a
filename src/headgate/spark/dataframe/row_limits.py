"""How many rows an action on a DataFrame wants of the job in its plan.

``limit(5)``, ``take``, ``first``, ``show`` and ``isEmpty`` are limits in the plan of the query that
the action runs. Law: a number is given only if no other part of the query can need more rows of the
job; whatever is not known for sure to pass a limit on means all rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

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
