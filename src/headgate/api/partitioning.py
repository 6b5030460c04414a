"""How records travel to the next operator: the methods of a stream that change nothing else."""

from collections.abc import Callable
from typing import Any, TypeVar, overload

from headgate.api.broadcast import BroadcastStream
from headgate.api.checks import key_function, partition_function
from headgate.api.draft import Origin
from headgate.api.functions import KeySelector, Partitioner
from headgate.functions.state import MapStateDescriptor
from headgate.plan import ship_strategies as ships
from headgate.plan.stream_graph import Ship

_Self = TypeVar("_Self", bound="Partitioning")


class Partitioning:
    """The last one called decides."""

    _origins: tuple[Origin, ...]

    def rebalance(self: _Self) -> _Self:
        """Records to all tasks of the next operator in turn."""
        return self._shipped(ships.rebalance())

    def rescale(self: _Self) -> _Self:
        """In turn, but each task only to its own share of the next operator's tasks."""
        return self._shipped(ships.rescale())

    def shuffle(self: _Self) -> _Self:
        """Each record to any task, by chance."""
        return self._shipped(ships.shuffle())

    def forward(self: _Self) -> _Self:
        """Each task to the one with the same number; both operators need the same parallelism."""
        return self._shipped(ships.forward())

    @overload
    def broadcast(self: _Self) -> _Self: ...

    @overload
    def broadcast(
        self, broadcast_state_descriptor: MapStateDescriptor, *others: MapStateDescriptor
    ) -> BroadcastStream: ...

    def broadcast(
        self: _Self,
        broadcast_state_descriptor: MapStateDescriptor | None = None,
        *others: MapStateDescriptor,
    ) -> "_Self | BroadcastStream":
        """Every record to every task; with descriptors, to be remembered there (``connect``)."""
        stream = self._shipped(ships.broadcast())
        if broadcast_state_descriptor is None:
            return stream
        return BroadcastStream(stream, (broadcast_state_descriptor, *others))  # type: ignore[arg-type] # a DataStream

    def global_(self: _Self) -> _Self:
        """Everything to the first task."""
        return self._shipped(ships.global_())

    def partition_custom(
        self: _Self,
        partitioner: Callable[[Any, int], int] | Partitioner[Any],
        key_selector: Callable[[Any], Any] | KeySelector[Any, Any],
    ) -> _Self:
        """The partitioner says which task gets the records of a key.

        ::

            stream.partition_custom(lambda key, tasks: key % tasks, lambda record: record[0])
        """
        key_of = key_function(key_selector, "partition_custom")
        return self._shipped(ships.custom(partition_function(partitioner), key_of))

    def _shipped(self: _Self, ship: Ship) -> _Self:
        """The same stream on another way."""
        raise NotImplementedError
