"""The event dispatcher: task events come back from consumers to whoever wrote the partition."""

from collections.abc import Callable

from headgate.base.events import TaskEvent
from headgate.base.ids import PartitionId

Subscriber = Callable[[TaskEvent], None]


class EventDispatcher:
    """Producers register their partitions; subscribers of a partition get its events."""

    def __init__(self) -> None:
        self._subscribers: dict[PartitionId, list[tuple[type[TaskEvent], Subscriber]]] = {}

    def register(self, partition: PartitionId) -> None:
        self._subscribers.setdefault(partition, [])

    def unregister(self, partition: PartitionId) -> None:
        self._subscribers.pop(partition, None)

    def subscribe(
        self, partition: PartitionId, kind: type[TaskEvent], subscriber: Subscriber
    ) -> None:
        """Call ``subscriber`` for every event of ``kind`` that comes back to ``partition``."""
        assert partition in self._subscribers, f"partition {partition!r} is not registered"
        self._subscribers[partition].append((kind, subscriber))

    def publish(self, partition: PartitionId, event: TaskEvent) -> bool:
        """Hand an event to its subscribers; says whether there was one."""
        found = False
        for kind, subscriber in list(self._subscribers.get(partition, ())):
            if isinstance(event, kind):
                found = True
                subscriber(event)
        return found
