"""What a client of Spark Connect has sent to its server and waits for: the plans of its operations.

The client of a classic session asks Java for the plan of a running query; here the server has it.
PySpark's client sends every operation through two methods, which note it while it runs. Law: an
operation goes PySpark's way, untouched, except that a closed client waits for no other try; what is
asked about it has a bound in time, and asking runs nothing: plans with parts that a server computes
as soon as it looks at them are left alone.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final

log = logging.getLogger(__name__)

EXPLAIN_S: Final = 5.0
LOOK_S: Final = 0.2
"""Between two looks at whether a client that waits before it tries again was closed."""
_OPTIMIZED: Final = "== Optimized Logical Plan ==\n"
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
operations_ended: Final[list[Callable[[str], None]]] = []
"""Called with the id of each operation that a client of this process waits for no more."""


def running_operations(client: Any) -> dict[str, int]:
    """The ids of those that a client waits for, with the number of tasks that were seen to run."""
    own = {name: found for name, found in list(_operations.items()) if found.client is client}
    return {name: int(getattr(found.progress, "_running", 0)) for name, found in own.items()}


def running_queries() -> set[str]:
    """The ids of those that any client of this process waits for."""
    return set(_operations)


def is_running(operation: str) -> bool:
    """Whether a client of this process waits for it."""
    return operation in _operations


def operation_holds(operation: str, relation: int) -> bool:
    """Whether the relation with this number is in the plan of one that runs; views hide theirs."""
    if (found := _operations.get(operation)) is None:
        return False
    return any(part.common.plan_id == relation for part in _relations(_whole(found.plan)))


def optimized_plan(operation: str) -> str | None:
    """The plan of a running operation as its server has optimized it, in words; None: unknown."""
    found = _operations.get(operation)
    plan = None if found is None else _explained(_whole(found.plan))
    if found is None or plan is None:
        return None
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
    return text.partition("\n== ")[0] or None


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
    for call in operations_ended:
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
