"""Ship strategies: every way in which the records of an edge find their task.

The API picks one for an edge, or ``default_strategy``. The job graph calls ``resolve_strategy``
when all parallelism is known. Law: a strategy can be pickled if the user's functions in it can.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from headgate.base.elements import Key, Record
from headgate.base.errors import PlanInvalid
from headgate.core.egress.router import (
    Broadcast,
    CustomPartitioner,
    Forward,
    Global,
    KeyGroupPartitioner,
    Rescale,
    RoundRobin,
    Router,
    Shuffle,
)
from headgate.functions.error_policy import OnError
from headgate.plan.stream_graph import ShipStrategy, StreamEdge, StreamGraph


def default_strategy() -> ShipStrategy:
    """The strategy of an edge that sets none: FORWARD, or REBALANCE if parallelism differs."""
    return replace(forward(), chosen=False)


def forward() -> ShipStrategy:
    """Each task to the one with its own index."""
    return ShipStrategy("FORWARD", partial(_same_for_all, Forward), pointwise=True)


def rebalance() -> ShipStrategy:
    """Records to all tasks in turn."""
    return ShipStrategy("REBALANCE", RoundRobin)  # producers begin at different consumers


def rescale() -> ShipStrategy:
    """Records in turn to the tasks of the producer's own share."""
    return ShipStrategy("RESCALE", partial(_same_for_all, Rescale), pointwise=True)


def shuffle() -> ShipStrategy:
    """Each record to any task, by chance."""
    return ShipStrategy("SHUFFLE", Shuffle)


def broadcast() -> ShipStrategy:
    """Every record to every task."""
    return ShipStrategy("BROADCAST", partial(_same_for_all, Broadcast))


def global_() -> ShipStrategy:
    """Everything to the first task."""
    return ShipStrategy("GLOBAL", partial(_same_for_all, Global))


def hash_by(
    key_of: Callable[[Record], Key],
    max_parallelism: int = 128,
    reader: str = "",
    key_type: object = None,
    reader_takes_all: bool = False,
) -> ShipStrategy:
    """Equal keys to the same task, by key group.

    ``max_parallelism`` and what is about the reader are replaced by those of the consumer when the
    job graph is built. ``reader_takes_all``: it has a policy for records whose key cannot be taken.
    """
    make_router = partial(
        _same_for_all, KeyGroupPartitioner, key_of, max_parallelism, reader, reader_takes_all
    )
    return ShipStrategy("HASH", make_router, key_of=key_of, key_type=key_type)


def hash_columns(
    names: tuple[str, ...],
    max_parallelism: int = 128,
    reader: str = "",
    reader_takes_all: bool = False,
) -> ShipStrategy:
    """Rows of Arrow batches with equal keys in these columns to the same task, by key group.

    What is about the reader is as for ``hash_by``.
    """
    from headgate.core.columns.keys import (  # noqa: PLC0415 - it loads pyarrow
        ColumnPartitioner,
    )

    make_router = partial(
        _same_for_all, ColumnPartitioner, names, max_parallelism, reader, reader_takes_all
    )
    return ShipStrategy("HASH", make_router, key_columns=names)


def custom(partitioner: Callable[[Key, int], int], key_of: Callable[[Record], Key]) -> ShipStrategy:
    """The user's function says which; it is given the key and the number of consumers."""
    return ShipStrategy("CUSTOM", partial(_same_for_all, CustomPartitioner, partitioner, key_of))


def resolve_strategy(graph: StreamGraph, edge: StreamEdge) -> ShipStrategy:
    """The final strategy of an edge, now that parallelism is known on both sides."""
    source, target = graph.nodes[edge.source], graph.nodes[edge.target]
    if graph.is_spread(edge):
        return rebalance()
    ship = edge.ship
    if ship.name == "FORWARD" and source.parallelism != target.parallelism:
        raise PlanInvalid(
            f"has parallelism {target.parallelism}, but {source.name!r}, which forwards to it, "
            f"has {source.parallelism}; use rebalance() or rescale() instead of forward(), "
            f"or give both the same parallelism",
            target.name,
        )
    takes_all = target.on_error.on_error is not OnError.FAIL
    if ship.key_columns:
        return hash_columns(ship.key_columns, target.max_parallelism, target.name, takes_all)
    if ship.key_of is not None:
        return hash_by(ship.key_of, target.max_parallelism, target.name, ship.key_type, takes_all)
    return ship


def _same_for_all(make: Callable[..., Router], *arguments: object) -> Router:
    """A router that does not depend on the producing subtask, whose index comes last."""
    return make(*arguments[:-1])
