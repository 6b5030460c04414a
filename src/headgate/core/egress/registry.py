"""How consumers reach the partitions of a task manager, and how their task events come back.

Law: the registry holds every partition from set-up to release. A subscriber of a class gets the
events of exactly that class; the classes subscribed for at a partition are also the only ones that
an event from another process may have.
"""

from collections.abc import Callable
from contextlib import ExitStack

from headgate.base.errors import PartitionNotFound, PartitionTaken, TaskCancelled
from headgate.base.events import TaskEvent, event_class_name
from headgate.base.ids import PartitionId
from headgate.core.egress.partition import Partition
from headgate.core.exchange.view import View


class PartitionRegistry:
    """Gives consumers their views. A released partition leaves by itself."""

    def __init__(self) -> None:
        self._partitions: dict[PartitionId, Partition] = {}
        self._closed = False

    def register(self, partition: Partition) -> None:
        """Make a partition known; twice, or after the end, is an error."""
        if self._closed:
            raise TaskCancelled(
                f"partition {partition.id!r} was set up while the task manager shuts down"
            )
        if partition.id in self._partitions:
            raise PartitionTaken(partition.id, "is already registered")
        self._partitions[partition.id] = partition
        partition.on_released = self._forget

    def create_view(
        self, partition: PartitionId, subpartition: int, on_data: Callable[[], None]
    ) -> View:
        """A reading of one subpartition; PartitionNotFound if the id is not known (yet)."""
        found = self._partitions.get(partition)
        if found is None:
            raise PartitionNotFound(partition)
        return found.create_view(subpartition, on_data)

    def close(self) -> None:
        """Release all and refuse new ones."""
        self._closed = True
        with ExitStack() as all_of_them:  # whatever one of them raises, the others are released
            for partition in reversed(self._partitions.values()):
                all_of_them.callback(partition.release)

    @property
    def readers(self) -> int:
        """How many may read here, all partitions together."""
        return sum(len(partition.subpartitions) for partition in self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    def __contains__(self, partition: object) -> bool:
        return partition in self._partitions

    def _forget(self, partition: Partition) -> None:
        self._partitions.pop(partition.id, None)


Subscriber = Callable[[TaskEvent], None]


class EventDispatcher:
    """Producers register their partitions; subscribers of a partition get its events."""

    def __init__(self) -> None:
        self._subscribers: dict[PartitionId, dict[type[TaskEvent], list[Subscriber]]] = {}

    def register(self, partition: PartitionId) -> None:
        """Make a partition known; twice is an error."""
        if partition in self._subscribers:
            raise PartitionTaken(partition, "is already registered for task events")
        self._subscribers[partition] = {}

    def unregister(self, partition: PartitionId) -> None:
        self._subscribers.pop(partition, None)

    def subscribe(
        self, partition: PartitionId, kind: type[TaskEvent], subscriber: Subscriber
    ) -> None:
        """Call ``subscriber`` for every event of class ``kind`` that comes back to ``partition``.

        Events of its subclasses are not for it. Two classes of the same name, as a notebook makes
        them by running a cell again, share what comes from other processes: the later one gets it.
        """
        assert partition in self._subscribers, f"partition {partition!r} is not registered"
        self._subscribers[partition].setdefault(kind, []).append(subscriber)

    def publish(self, partition: PartitionId, event: TaskEvent) -> bool:
        """Hand an event to its subscribers; says whether there was one."""
        subscribers = self._subscribers.get(partition, {}).get(type(event), ())
        for subscriber in list(subscribers):
            subscriber(event)
        return bool(subscribers)

    def class_named(self, partition: PartitionId, name: str) -> type[TaskEvent] | None:
        """The class that the wire calls so, if somebody at the partition has subscribed for it."""
        for kind in reversed(self._subscribers.get(partition, {})):
            if event_class_name(kind) == name:
                return kind
        return None
