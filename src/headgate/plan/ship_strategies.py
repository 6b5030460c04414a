"""Ships: every way in which the records of an edge find their task.

The API picks one for an edge, or leaves it to ``unchosen``. ``settled`` is called by the job graph
when all parallelism is known. Law: a ship can be pickled if the user's functions in it can.
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
from headgate.plan.stream_graph import Ship, StreamEdge, StreamGraph


def unchosen() -> Ship:
    """What an edge has that nobody asked about: FORWARD, or REBALANCE if parallelism differs."""
    return replace(forward(), chosen=False)


def forward() -> Ship:
    """Each task to the one with its own index."""
    return Ship("FORWARD", _forward, pointwise=True)


def rebalance() -> Ship:
    """Records to all tasks in turn."""
    return Ship("REBALANCE", RoundRobin)  # producers begin at different consumers


def rescale() -> Ship:
    """Records in turn to the tasks of the producer's own share."""
    return Ship("RESCALE", _rescale, pointwise=True)


def shuffle() -> Ship:
    """Each record to any task, by chance."""
    return Ship("SHUFFLE", Shuffle)


def broadcast() -> Ship:
    """Every record to every task."""
    return Ship("BROADCAST", _broadcast)


def global_() -> Ship:
    """Everything to the first task."""
    return Ship("GLOBAL", _global)


def hash_by(
    key_of: Callable[[Record], Key],
    max_parallelism: int = 128,
    reader: str = "",
    key_type: object = None,
) -> Ship:
    """Equal keys to the same task, by key group.

    ``max_parallelism`` and ``reader`` are replaced by those of the consumer when the job graph is
    built.
    """
    make_router = partial(_keyed, key_of, max_parallelism, reader)
    return Ship("HASH", make_router, key_of=key_of, key_type=key_type)


def custom(partitioner: Callable[[Key, int], int], key_of: Callable[[Record], Key]) -> Ship:
    """The user's function says which; it is given the key and the number of consumers."""
    return Ship("CUSTOM", partial(_custom, partitioner, key_of))


def settled(graph: StreamGraph, edge: StreamEdge) -> Ship:
    """The ship of an edge now that parallelism is known on both sides."""
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
    if ship.key_of is not None:
        return hash_by(ship.key_of, target.max_parallelism, target.name, ship.key_type)
    return ship


# Each is given the index of the producing subtask, which only some need.


def _forward(subtask: int) -> Router:
    return Forward()


def _rescale(subtask: int) -> Router:
    return Rescale()


def _broadcast(subtask: int) -> Router:
    return Broadcast()


def _global(subtask: int) -> Router:
    return Global()


def _keyed(
    key_of: Callable[[Record], Key], max_parallelism: int, reader: str, subtask: int
) -> Router:
    return KeyGroupPartitioner(key_of, max_parallelism, reader)


def _custom(
    partitioner: Callable[[Key, int], int], key_of: Callable[[Record], Key], subtask: int
) -> Router:
    return CustomPartitioner(partitioner, key_of)
