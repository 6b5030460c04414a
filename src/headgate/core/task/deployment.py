"""The tasks of one run in one worker: assembled, placed, triggered, cancelled, released.

Both the worker and the simulator deploy through this machine; they start the threads. Law: all
tasks of an order are assembled before the first one starts, so that each finds the partitions of
its neighbours; an order that fails takes nothing; nothing is assembled after a cancellation.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from typing import Generic

from msgspec import structs

from headgate.base.errors import TaskCancelled
from headgate.base.messages import TaskFigures, TaskOrder
from headgate.core.checkpoint.restored import CheckpointReader, TaskRestored, read_restore
from headgate.core.exchange.link import Address
from headgate.core.task.assembly import AssembledTask, TaskAssembly, Thread


class DeployedTasks(Generic[Thread]):
    """Deploys and releases the tasks of a run.

    Methods that ``RunTasks`` does not have are called inside the baton, except for ``read``.
    """

    def __init__(
        self,
        assembly: TaskAssembly[Thread],
        inside: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """``inside`` takes the baton, where there are threads."""
        self.tasks: list[AssembledTask[Thread]] = []
        self.inside = inside
        self._assembly = assembly
        self._cancelled = False

    def read(
        self, orders: Sequence[TaskOrder], reader: CheckpointReader
    ) -> dict[str, TaskRestored]:
        """What tasks get back of a checkpoint, by their ids."""
        return {
            order.id: read_restore(
                order.restore, reader, partial(self._assembly.reassigned_bundles, order)
            )
            for order in orders
            if order.restore is not None
        }

    def assemble(
        self,
        orders: Sequence[TaskOrder],
        places: Mapping[str, Address | None],
        restored: Mapping[str, TaskRestored],
    ) -> list[AssembledTask[Thread]]:
        """Producers that ``places`` does not name come with ``placed``."""
        if self._cancelled:
            raise TaskCancelled("the job was cancelled before its tasks were set up")
        with ExitStack() as undo:
            ready = [
                self._assembly.assemble(order, places, undo, restored.get(order.id))
                for order in orders
            ]
            undo.pop_all()
        self.tasks += ready
        return ready

    def start(self, ready: Sequence[AssembledTask[Thread]]) -> None:
        """Let assembled tasks run; one that was cancelled meanwhile ends at once."""
        for deployed in ready:
            deployed.thread.start(deployed.task)

    def placed(self, producer: str, address: Address | None) -> None:
        """It is known now where a producer runs; None or our own address: here."""
        with self.inside():
            self._assembly.placed(producer, address)

    def commits_longer_than(self, timeout_ms: int) -> list[tuple[str, int]]:
        """Tasks that have been committing a checkpoint for longer than this, and its number."""
        found = [(each.name, each.task.commits_too_long(timeout_ms)) for each in self.tasks]
        return [(task, checkpoint) for task, checkpoint in found if checkpoint is not None]

    def cancel(self) -> None:
        """End all tasks, also those that are to come."""
        with self.inside():
            self._cancelled = True
            for deployed in self.tasks:
                deployed.task.cancel()
                deployed.thread.cancel()

    def release_partitions(self) -> None:
        """Release the partitions of ended tasks: stored ones, and those that nobody has read."""
        with ExitStack() as every:
            for deployed in self.tasks:
                if not deployed.thread.is_alive:
                    for writer in deployed.writers:
                        every.callback(writer.partition.release)

    def figures(self) -> Iterator[TaskFigures]:
        """What each task has done so far; the baton may be given away between two of them."""
        for deployed in list(self.tasks):
            yield _figures(deployed)

    def take_warnings(self) -> list[tuple[str, str]]:
        """About figures that could not be read, with the names of the tasks; each once."""
        return [(each.task.name, text) for each in self.tasks for text in each.task.take_warnings()]


def _figures(deployed: AssembledTask[Thread]) -> TaskFigures:
    order, thread = deployed.order, deployed.thread
    return structs.replace(
        deployed.task.figures(),
        task=order.id,
        vertex=order.vertex,
        subtask=order.subtask,
        slot=order.slot,
        cpu_ms=thread.cpu_ms,
        runnable_ms=thread.runnable_ms,
    )
