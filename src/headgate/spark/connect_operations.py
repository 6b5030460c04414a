"""What a client of Spark Connect has sent to its server and waits for: the plans of its operations.

The client of a classic session asks Java for the plan of a running query; here the server has it.
PySpark's client sends every operation through two methods, which note it while it runs. Law: an
operation goes PySpark's way, untouched, except that a closed client waits for no other try; what is
asked about it has a bound in time, and asking runs nothing: plans with parts that a server computes
as soon as it looks at them are left alone.
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from queue import Empty, SimpleQueue
from typing import Any, Final

from headgate.spark.dataframe.row_limits import LIMIT, OFFSET, PlanNode, limit_of

log = logging.getLogger(__name__)

EXPLAIN_S: Final = 5.0
LOOK_S: Final = 0.2
"""Between two looks at whether a client that waits before it tries again was closed."""
_OPTIMIZED: Final = "== Optimized Logical Plan ==\n"
MOST_LINES: Final = 300
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


@dataclass(frozen=True, slots=True)
class ConnectOperation:
    """One that runs, and the client that has sent it."""

    client: Any
    plan: Any
    progress: Any = None
    """PySpark's, of which the server tells from time to time; None: nobody wants to know."""


_operations: Final[dict[str, ConnectOperation]] = {}
_ended: Final[list[Callable[[str], None]]] = []
"""Called with the id of each operation that a client of this process waits for no more."""


def running_operations(client: Any) -> dict[str, int]:
    """The ids of those that a client waits for, with the number of tasks that were seen to run."""
    own = {name: found for name, found in list(_operations.items()) if found.client is client}
    return {name: int(getattr(found.progress, "_running", 0)) for name, found in own.items()}


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
        if (found := _operations.get(query)) is None:
            return False
        return any(part.common.plan_id == job for part in _relations(_whole(found.plan)))

    def has_ended(self, query: str) -> bool:
        return query not in _operations

    def running(self) -> set[str]:
        return set(_operations)

    def await_end(self, timeout_s: float) -> str:
        if self._inbox is None:
            self._inbox = SimpleQueue()
            _ended.append(self._inbox.put)
        try:
            return self._inbox.get(timeout=timeout_s)
        except Empty:
            return ""

    def close(self) -> None:
        if self._inbox is not None:
            _ended.remove(self._inbox.put)


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


def _optimized_plan(operation: str) -> str:
    """The plan of a running operation as its server has optimized it; nothing: it is not known."""
    found = _operations.get(operation)
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


def note_operations() -> None:
    """Of all clients of this process, from now on; idempotent."""
    from pyspark.sql.connect.client.core import SparkConnectClient

    client: Any = SparkConnectClient
    for name, wrapped in (
        ("_execute", _noted_call),
        ("_execute_and_fetch_as_iterator", _noted_iterator),
        ("_retrying", _ended_by_close),
    ):
        usual: Callable[..., Any] | None = getattr(client, name, None)
        if usual is not None and not hasattr(usual, "is_headgate"):  # none: another PySpark
            noted: Any = wraps(usual)(wrapped(usual))
            noted.is_headgate = True
            setattr(client, name, noted)


def _noted_call(usual: Callable[..., Any]) -> Callable[..., Any]:
    def execute(self: Any, req: Any, *rest: Any, **named: Any) -> Any:
        _operations[req.operation_id] = ConnectOperation(self, req.plan)
        try:
            return usual(self, req, *rest, **named)
        finally:
            _note_end(req.operation_id)

    return execute


def _noted_iterator(usual: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    def execute(self: Any, req: Any, *rest: Any, **named: Any) -> Iterator[Any]:
        progress = named.get("progress")
        _operations[req.operation_id] = ConnectOperation(self, req.plan, progress)
        try:
            yield from usual(self, req, *rest, **named)
        finally:
            _note_end(req.operation_id)

    return execute


def _note_end(operation: str) -> None:
    _operations.pop(operation, None)
    for call in _ended:
        call(operation)


def _ended_by_close(usual: Callable[..., Any]) -> Callable[..., Any]:
    def retrying(self: Any) -> Any:
        made = usual(self)
        sleep = getattr(made, "_sleep", None)
        if sleep is time.sleep:

            def wait(seconds: float) -> None:
                until = time.monotonic() + seconds
                while not self.is_closed and (left := until - time.monotonic()) > 0:
                    time.sleep(min(left, LOOK_S))

            made._sleep = wait
        return made

    return retrying


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
