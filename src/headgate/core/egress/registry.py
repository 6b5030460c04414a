"""The registry: every partition of a task manager by its id, from set-up to release."""

from collections.abc import Callable
from contextlib import ExitStack

from headgate.base.errors import PartitionNotFound, PartitionTaken, TaskCancelled
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

    def release(self, partition: PartitionId, failure: Exception | None = None) -> None:
        """Release one partition, if it is there."""
        found = self._partitions.get(partition)
        if found is not None:
            found.release(failure)

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
