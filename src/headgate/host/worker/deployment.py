"""A job's tasks in one task manager: set up on its exchange, run, told about, ended.

All tasks of a call are set up before the first one runs, so that each finds the partitions of its
neighbours. What a failed set-up had taken is given back.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

from headgate.base.checkpoints import CheckpointOptions, TaskRestore
from headgate.base.errors import TaskCancelled
from headgate.base.messages import TaskFigures, TaskState
from headgate.core.checkpoint.restored import TaskRestored
from headgate.core.exchange.ends import Address
from headgate.core.state.backend import Backends
from headgate.core.task.environment import Environment
from headgate.host.checkpoints.restoring import read_restores
from headgate.host.checkpoints.snapshot_writer import SnapshotWriters
from headgate.host.net.exchange import Exchange
from headgate.host.worker.task_setup import Deployed, JobInfo, TaskSetup
from headgate.plan.execution_graph import TaskSpec
from headgate.plan.job_graph import JobVertex

Report = Callable[[str, TaskState, BaseException | None], None]
OnTime = Callable[[str, str, int | None], None]


class Deployment:
    """Runs tasks of one job. ``report`` is called from their threads, outside the baton."""

    def __init__(
        self,
        exchange: Exchange,
        vertices: Mapping[int, JobVertex],
        info: JobInfo,
        report: Report,
        again: Callable[[], Mapping[int, JobVertex]] | None = None,
        backends: Backends | None = None,
        writing: SnapshotWriters | None = None,
    ) -> None:
        """``again`` makes the vertices anew: tasks of the same vertex share no function.

        ``writing``: where their checkpoints go; None: they take none.
        """
        self._exchange = exchange
        self._setup = TaskSetup(exchange, vertices, info, again, backends, writing)
        self._writing = writing
        self._report = report
        self.on_time: OnTime = lambda task, group, watermark_ms: None
        """Told by source tasks that are aligned with a group; from their threads."""
        self._deployed: list[Deployed] = []
        self._cancelled = False

    def deploy(
        self,
        tasks: Sequence[TaskSpec],
        places: Mapping[str, Address | None],
        restores: Mapping[str, TaskRestore] | None = None,
    ) -> None:
        """Set up and start tasks; producers that ``places`` does not name come with ``placed``.

        ``restores``: what tasks get back of a checkpoint, by their ids.
        """
        restored = self._read(tasks, restores) if restores else {}
        ready: list[Deployed] = []
        with self._exchange.inside() as environment:
            if self._cancelled:
                raise TaskCancelled("the job was cancelled before its tasks were set up")
            with ExitStack() as undo:
                for spec in tasks:
                    got = restored.get(spec.id)
                    ready += [self._set_up(environment, spec, places, undo, got)]
                undo.pop_all()
            self._deployed += ready
        for one in ready:
            one.runner = self._exchange.run(one.task, one.seat)
        if self._cancelled:
            self.cancel()

    def placed(self, producer: str, address: Address | None) -> None:
        """It is known now where a producer runs; None or our own address: here."""
        with self._exchange.inside() as environment:
            place = self._setup.place(address)
            for gate, index in self._setup.unplaced.pop(producer, ()):
                environment.place(gate, index, place)

    def announce(self, group: str, watermark_ms: int | None) -> None:
        """The slowest source of a group is this far; None: there is nobody to wait for."""
        with self._exchange.inside():
            for one in self._deployed:
                one.task.time_announced(group, watermark_ms)

    def trigger_checkpoint(self, task: str, checkpoint: int, options: CheckpointOptions) -> str:
        """Let a task begin a checkpoint; why it cannot, or nothing."""
        if self._writing is None:
            return "the job takes no checkpoints"
        with self._exchange.inside():
            found = next((one.task for one in self._deployed if one.spec.id == task), None)
            if found is None:
                return f"task {task} is not here"
            state = found.lifecycle.state
            if state.has_ended and state is not TaskState.FINISHED:  # the driver hears of that one
                return f"task {task} is {state.value}"
            found.trigger_checkpoint(checkpoint, options)
        return ""

    def checkpoint_completed(self, checkpoint: int) -> None:
        """A checkpoint is stored: what was prepared for it is to be committed."""
        with self._exchange.inside():
            for one in self._deployed:
                one.task.checkpoint_completed(checkpoint)

    def checkpoint_aborted(self, checkpoint: int, reason: str) -> None:
        """A checkpoint comes to nothing."""
        with self._exchange.inside():
            for one in self._deployed:
                one.task.checkpoint_aborted(checkpoint, reason)

    def overdue_commits(self) -> list[tuple[str, int, int]]:
        """Tasks that commit a checkpoint for longer than they may: its number, and how long."""
        if self._writing is None:
            return []
        timeout_ms = self._writing.order.timeout_ms
        with self._exchange.inside():
            found = [(one.spec.id, one.task.commits_too_long(timeout_ms)) for one in self._deployed]
        return [(task, number, timeout_ms) for task, number in found if number is not None]

    def end_writing(self) -> None:
        """Nothing more is written for checkpoints; what is not acknowledged is removed."""
        if self._writing is not None:
            self._writing.close()

    def cancel(self) -> None:
        """End all tasks; ``report`` tells when they have ended."""
        self._cancelled = True
        with self._exchange.inside():
            for one in self._deployed:
                one.task.cancel()
                one.seat.cancel()

    def ends_within(self, timeout_s: float) -> bool:
        """Wait for all tasks to end, however; says whether they did."""
        deadline = time.monotonic() + timeout_s
        return all(
            one.runner is None or one.runner.ends_within(max(0.0, deadline - time.monotonic()))
            for one in self._deployed
        )

    def statistics(self) -> list[TaskFigures]:
        """What each task has done so far."""
        with self._exchange.inside():
            return [_figures(one) for one in self._deployed]

    def close(self, timeout_s: float = 30.0) -> bool:
        """The job is over: cancel what still runs, wait for it, drop what nobody has read.

        Says whether everything has ended; what a task that hangs has written is left alone.
        """
        if not self.ends_within(0):
            self.cancel()
        ended = self.ends_within(timeout_s)
        self.end_writing()
        if not self._exchange.closed:
            self._release_partitions()
        return ended

    def _set_up(
        self,
        environment: Environment,
        spec: TaskSpec,
        places: Mapping[str, Address | None],
        undo: ExitStack,
        restored: TaskRestored | None,
    ) -> Deployed:
        one = self._setup.set_up(environment, spec, places, undo, restored)
        task = one.task
        task.on_state = lambda state, error: self._report(spec.id, state, error)
        task.on_time = lambda group, watermark_ms: self.on_time(spec.id, group, watermark_ms)
        if (writing := self._writing) is not None:
            task.on_declined = partial(writing.declined, spec.id)
            task.on_checkpoint_wanted = partial(writing.wanted, spec.id)
        return one

    def _read(
        self, tasks: Sequence[TaskSpec], restores: Mapping[str, TaskRestore]
    ) -> dict[str, TaskRestored]:
        assert self._writing is not None, "what is restored was written somewhere"
        bundles_of = {spec.id: self._setup.bundles_of(spec) for spec in tasks}
        order, shared = self._writing.order, self._writing.shared_uri
        where = (shared, order.folder)
        return read_restores(
            order.restored_from, restores, bundles_of, *where, needs_digests=order.digests
        )

    def _release_partitions(self) -> None:
        """Of tasks that have ended: stored ones, and those whose readers never came."""
        with self._exchange.inside(), ExitStack() as last:
            for one in self._deployed:
                if one.runner is None or not one.runner.is_alive:
                    for partition in one.partitions:
                        last.callback(partition.release)


def _figures(one: Deployed) -> TaskFigures:
    seen = one.task.statistics()
    return TaskFigures(
        task=one.spec.id,
        vertex=one.spec.vertex,
        subtask=one.spec.subtask,
        state=seen.state,
        records_in=seen.records_in,
        records_out=seen.records_out,
        bytes_in=seen.bytes_in,
        bytes_out=seen.bytes_out,
        buffers_in=seen.buffers_in,
        buffers_out=seen.buffers_out,
        busy_ms=seen.spent.busy_ms,
        backpressured_ms=seen.spent.backpressured_ms,
        idle_ms=seen.spent.idle_ms,
        queued_in=seen.queued_in,
        queued_out=seen.queued_out,
        buffer_size=seen.sizes.buffer_size,
        in_flight_ms=seen.sizes.in_flight_ms,
        latency_p50_ms=seen.latency.p50_ms if seen.latency else 0.0,
        latency_p99_ms=seen.latency.p99_ms if seen.latency else 0.0,
        input_watermarks_ms=(seen.watermark_in_ms,),
        output_watermark_ms=seen.watermark_out_ms,
        records_made=sum(o.records_out for o in seen.operators[:1]) if not one.spec.gates else 0,
        user=seen.user,
    )
