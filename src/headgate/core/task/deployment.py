"""The tasks of one run in one worker: assembled, placed, triggered, cancelled, released.

Both the worker and the simulator deploy through this machine; they start the threads. Law: all
tasks of an order are assembled before the first one starts, so that each finds the partitions of
its neighbours; an order that fails takes nothing; nothing is assembled after a cancellation.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Generic

from headgate.base.checkpoints import CheckpointOptions, SplitData
from headgate.base.errors import TaskCancelled
from headgate.base.figures import UNKNOWN, OperatorFigures
from headgate.base.messages import SourceTimeAnnounced, TaskFigures, TaskOrder, TaskState
from headgate.core.chain.chain import OperatorStatistics
from headgate.core.checkpoint.restored import CheckpointReader, TaskRestored, read_restore
from headgate.core.exchange.ends import Address
from headgate.core.task.assembly import AssembledTask, TaskAssembly, Thread


class DeployedTasks(Generic[Thread]):
    """Called inside the baton, but for ``read`` and ``start``."""

    def __init__(self, assembly: TaskAssembly[Thread]) -> None:
        self.tasks: list[AssembledTask[Thread]] = []
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
        self._assembly.placed(producer, address)

    def time_announced(self, group: str, watermark_ms: int | None) -> None:
        """The slowest source of a group is this far; None: there is nobody to wait for."""
        for deployed in self.tasks:
            deployed.task.time_announced(group, watermark_ms)

    def splits_assigned(
        self, task: str, splits: Sequence[SplitData], backlog: bool, no_more: bool
    ) -> None:
        """The driver hands out splits to a task; one that has ended needs none."""
        for deployed in self.tasks:
            if deployed.name == task:
                deployed.task.splits_assigned(splits, backlog, no_more)

    def source_time_announced(self, announced: SourceTimeAnnounced) -> None:
        """How far the other tasks of a source are; one that has ended need not know."""
        for deployed in self.tasks:
            if deployed.name == announced.task:
                deployed.task.source_time_announced(announced)

    def trigger_checkpoint(self, task: str, checkpoint: int, options: CheckpointOptions) -> str:
        """Let a task begin a checkpoint; why it cannot, or nothing."""
        found = next((deployed for deployed in self.tasks if deployed.name == task), None)
        if found is None:
            return f"task {task} is not here"
        state = found.state
        if state.has_ended and state is not TaskState.FINISHED:  # the driver hears of that one
            return f"task {task} is {state.value}"
        found.task.trigger_checkpoint(checkpoint, options)
        return ""

    def checkpoint_completed(self, checkpoint: int) -> None:
        """A checkpoint is stored: what was prepared for it is to be committed."""
        for deployed in self.tasks:
            deployed.task.checkpoint_completed(checkpoint)

    def checkpoint_aborted(self, checkpoint: int, reason: str) -> None:
        """A checkpoint is given up."""
        for deployed in self.tasks:
            deployed.task.checkpoint_aborted(checkpoint, reason)

    def overdue_commits(self, timeout_ms: int) -> list[tuple[str, int]]:
        """Tasks that have been committing a checkpoint for longer than this, and its number."""
        found = [(each.name, each.task.commits_too_long(timeout_ms)) for each in self.tasks]
        return [(task, checkpoint) for task, checkpoint in found if checkpoint is not None]

    def cancel(self) -> None:
        """End all tasks, also those that are to come."""
        self._cancelled = True
        for deployed in self.tasks:
            deployed.task.cancel()
            deployed.thread.cancel()

    def release_partitions(self) -> None:
        """Of tasks that have ended: stored ones, and those whose readers never came."""
        with ExitStack() as every:
            for deployed in self.tasks:
                if not deployed.thread.is_alive:
                    for writer in deployed.writers:
                        every.callback(writer.partition.release)

    def statistics(self) -> Iterator[TaskFigures]:
        """What each task has done so far; the baton may be given away between two of them."""
        for deployed in list(self.tasks):
            yield _figures(deployed)

    def take_warnings(self) -> list[tuple[str, str]]:
        """About figures that could not be read, with the names of the tasks; each once."""
        return [(each.task.name, text) for each in self.tasks for text in each.task.take_warnings()]


def _figures(deployed: AssembledTask[Thread]) -> TaskFigures:
    seen = deployed.task.statistics()
    made = 0 if deployed.order.gates else sum(head.records_out for head in seen.operators[:1])
    return TaskFigures(
        task=deployed.order.id,
        vertex=deployed.order.vertex,
        subtask=deployed.order.subtask,
        state=seen.state,
        records_in=seen.records_in,
        records_out=seen.records_out,
        bytes_in=seen.bytes_in,
        bytes_out=seen.bytes_out,
        buffers_in=seen.buffers_in,
        buffers_out=seen.buffers_out,
        busy_ms=seen.spent.busy_ms,
        backpressured_ms=seen.spent.backpressured_ms,
        soft_backpressured_ms=seen.spent.soft_backpressured_ms,
        hard_backpressured_ms=seen.spent.hard_backpressured_ms,
        idle_ms=seen.spent.idle_ms,
        cpu_ms=deployed.thread.cpu_ms,
        runnable_ms=deployed.thread.runnable_ms,
        commit_ms=deployed.task.commit_ms,
        queued_in=seen.queued_in,
        queued_out=seen.queued_out,
        buffer_size=seen.sizes.buffer_size,
        in_flight_ms=seen.sizes.in_flight_ms,
        latency_p50_ms=seen.latency.p50_ms if seen.latency else 0.0,
        latency_p99_ms=seen.latency.p99_ms if seen.latency else 0.0,
        input_watermarks_ms=seen.watermarks_in_ms,
        output_watermark_ms=seen.watermark_out_ms,
        records_made=made,
        user=seen.user,
        slot=deployed.order.slot,
        gates=seen.gates,
        outputs=seen.outputs,
        operators=tuple(map(_operator_figures, seen.operators)),
        latency=seen.histogram,
        async_calls=seen.async_calls,
        batch_calls=seen.batch_calls,
        state_bytes=_known(seen.state_bytes, deployed.task.checkpointed_bytes),
        splits=seen.splits,
        declared_rate=seen.declared_rate,
        lag_records=UNKNOWN if seen.lag.records is None else seen.lag.records,
        lag_bytes=UNKNOWN if seen.lag.bytes is None else seen.lag.bytes,
        lag_ms=UNKNOWN if seen.lag.age_ms is None else seen.lag.age_ms,
    )


def _operator_figures(seen: OperatorStatistics) -> OperatorFigures:
    return OperatorFigures(
        seen.name,
        seen.records_in,
        seen.records_out,
        seen.skipped,
        seen.dead_letters,
        seen.late,
        seen.most_late_ms,
    )


def _known(first: int, second: int) -> int:
    return second if first == UNKNOWN else first
