"""The event dispatcher: task events come back from consumers to whoever wrote the partition.

Law: a subscriber of a class gets the events of exactly that class. The classes that are subscribed
for at a partition are also the only ones that an event from another process may have.
"""

from collections.abc import Callable

from headgate.base.errors import PartitionTaken
from headgate.base.events import TaskEvent, event_class_name
from headgate.base.ids import PartitionId

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
