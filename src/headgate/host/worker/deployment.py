"""A job's tasks in one task manager: assembled on its exchange, run on threads, ended.

``DeployedTasks`` is the machine; here are the baton it is used in, the threads and the storage.
"""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from headgate.base.inspections import ChannelFigures, ReadState, SampledActivity
from headgate.base.messages import TaskFigures, TaskOrder, TaskState
from headgate.core.chain.context import Clock
from headgate.core.chain.log_facts import facts_of_task, logged_with
from headgate.core.checkpoint.restored import TaskRestored
from headgate.core.exchange.link import Address
from headgate.core.state.backend import Backends
from headgate.core.task.assembly import AssembledTask, TaskAssembly
from headgate.core.task.deployment import DeployedTasks
from headgate.core.task.inspection import AnswerRead, CopiedGate, CopyLimits
from headgate.core.task.statistics import TaskActivity
from headgate.core.task.task import Task, TaskServices
from headgate.functions.context import TaskInfo
from headgate.host.checkpoints.restoring import open_checkpoint
from headgate.host.checkpoints.snapshot_writer import SnapshotWriters
from headgate.host.net.exchange import Exchange
from headgate.host.net.loop import LoopWatch, now_ms, wall_ms
from headgate.host.net.runner import BatonLoan, Runner
from headgate.host.shipping.failures import readable_traceback
from headgate.host.worker.async_calls import LoopCalls
from headgate.host.worker.stack_sampler import SampledTask

log = logging.getLogger(__name__)

_ACTIVITIES: Final = {
    TaskActivity.BUSY: SampledActivity.BUSY,
    TaskActivity.SOFT_BACKPRESSURED: SampledActivity.BACKPRESSURED,
    TaskActivity.HARD_BACKPRESSURED: SampledActivity.BACKPRESSURED,
    TaskActivity.IDLE: SampledActivity.IDLE,
}

_REPORT_MS: Final = 5.0
"""For so long the figures of tasks are read before other threads get the baton."""

_SLICE: Final = 1_000
"""So many channels are looked at before other threads get the baton."""


class InspectionRefused(Exception):
    """Why a task cannot be looked at."""


class RunnerThread:
    """See ``ExecutionThread``; the thread of a task on an exchange."""

    def __init__(self, exchange: Exchange, info: TaskInfo, backends: Backends) -> None:
        self.name = name = f"{info.vertex[:80]} ({info.subtask + 1}/{info.parallelism})"
        self.task_thread = exchange.task_thread(name)
        self.runner: Runner | None = None
        self.services = TaskServices(
            BatonLoan(exchange.baton, self.task_thread.turn),
            Clock(now_ms, wall_ms, exchange.loop.later, exchange.runnable_ms, exchange.round_ms),
            self.task_thread.wake,
            self.task_thread.wait,
            partial(LoopCalls, exchange.loop.post, name),
            backends,
            exchange.files,
            _warn,
            exchange.loop.post,
            partial(LoopWatch, exchange.loop),
            lambda: self.task_thread.cancelled,
            self.task_thread.sleep,
            self.task_thread.when_cancelled,
        )
        self._exchange = exchange
        self._info = info

    @property
    def is_alive(self) -> bool:
        return self.runner is not None and self.runner.is_alive

    @property
    def cpu_ms(self) -> float:
        return 0.0 if self.runner is None else self.runner.cpu_ms

    @property
    def runnable_ms(self) -> float:
        return 0.0 if self.runner is None else self.runner.runnable_ms

    def start(self, task: Task) -> None:
        with logged_with(facts_of_task(self._info)):
            self.runner = self._exchange.run(task, self.task_thread)

    def cancel(self) -> None:
        self.task_thread.cancel()

    def ends_within(self, timeout_s: float) -> bool:
        """Wait for the end, however it comes; says whether it came."""
        return self.runner is None or self.runner.ends_within(timeout_s)


class ExchangeWorker:
    """See ``TaskWorker``; the exchange of a task manager, and where its tasks keep state."""

    def __init__(self, exchange: Exchange, backends: Backends) -> None:
        self.exchange = exchange
        self.environment = exchange.environment
        self.flush_by_time = exchange.flush_by_time
        self._backends = backends

    @property
    def address(self) -> Address:
        return self.exchange.address

    def create_thread(self, order: TaskOrder, info: TaskInfo) -> RunnerThread:
        return RunnerThread(self.exchange, info, self._backends)


class Deployment(DeployedTasks[RunnerThread]):
    """Runs the tasks of one run; ``writing``: where checkpoints go; None: none are taken."""

    def __init__(
        self,
        exchange: Exchange,
        assembly: TaskAssembly[RunnerThread],
        writing: SnapshotWriters | None = None,
    ) -> None:
        super().__init__(assembly, exchange.inside)
        self._exchange = exchange
        self._writing = writing

    def deploy(self, orders: Sequence[TaskOrder], places: Mapping[str, Address | None]) -> None:
        """Set up and start tasks; producers that ``places`` does not name come with ``placed``."""
        restored = self._read(orders)
        with self._exchange.inside():
            ready = self.assemble(orders, places, restored)
        self.start(ready)

    def report(self) -> list[TaskFigures]:
        """Tasks wait for the baton no longer than a step takes, however many channels there are."""
        figures: list[TaskFigures] = []
        warnings: list[tuple[str, str]] = []
        unread = self.figures()
        is_through = False
        while not is_through:
            with self._exchange.inside():
                until_ms = now_ms() + _REPORT_MS
                for task_figures in unread:
                    figures.append(task_figures)
                    if now_ms() > until_ms:
                        break
                else:
                    is_through = True
                    warnings = self.take_warnings()
        for task, text in warnings:
            log.warning("task %s: %s", task, text)
        return figures

    # Looking at tasks, from any thread but theirs; InspectionRefused says why not.

    def sampled_task(self, task: str) -> SampledTask:
        """A task that runs, as the stack sampler sees it."""
        found = self._find(task)
        runner = found.thread.runner
        if runner is None or not runner.is_alive:
            raise InspectionRefused(f"it is {found.state.value}")
        names = f"headgate-source of {found.task.name}", f"headgate-async-{found.thread.name}"
        helpers = [thread for thread in threading.enumerate() if thread.name in names]
        return SampledTask(runner.thread, helpers, lambda: _ACTIVITIES[found.task.activity])

    def copy_waiting(
        self, task: str, gate: int, channel: int | None, limits: CopyLimits
    ) -> CopiedGate:
        """What waits in a gate of a task, or in a channel of it."""
        found = self._running(task)
        _check_gate(found, gate)
        if channel is not None and not 0 <= channel < len(found.order.gates[gate]):
            count = len(found.order.gates[gate])
            raise InspectionRefused(f"gate {gate} has {count} channels, but no channel {channel}")
        with self._exchange.inside():
            return found.task.waiting_inputs().copy(gate, channel, limits)

    def copy_keyed(self, task: str, limits: CopyLimits) -> list[CopiedGate]:
        """What waits in those gates of a task whose records have keys."""
        found = self._running(task)
        _check_gate(found, 0)
        with self._exchange.inside():
            inputs = found.task.waiting_inputs()
            return [inputs.copy(gate, None, limits) for gate in inputs.keyed_gates()]

    def channel_figures(self, task: str, gate: int | None) -> list[ChannelFigures]:
        """The channels of a task; a long list is not of a single moment."""
        found = self._running(task)
        _check_gate(found, gate or 0)
        figures: list[ChannelFigures] = []
        for number in range(len(found.gates)) if gate is None else [gate]:
            producers = [channel.producer for channel in found.order.gates[number]]
            for start in range(0, len(producers), _SLICE):
                indices = range(start, min(start + _SLICE, len(producers)))
                with self._exchange.inside():
                    figures += found.gates[number].channel_figures(number, producers, indices)
        return figures

    def read_state(self, task: str, question: ReadState, answer: AnswerRead) -> None:
        """See ``StateReads``; called inside the baton."""
        try:
            found = self._find(task)
        except InspectionRefused as refused:
            answer(str(refused))
            return
        if found.state is TaskState.RUNNING:
            found.task.read_state(question, answer)
        else:
            answer(f"it is {found.state.value}")

    def _running(self, task: str) -> AssembledTask[RunnerThread]:
        found = self._find(task)
        if found.state.has_ended:
            raise InspectionRefused(f"it is {found.state.value}")
        return found

    def _find(self, task: str) -> AssembledTask[RunnerThread]:
        for deployed in self.tasks:
            if deployed.name == task:
                return deployed
        raise InspectionRefused("it is not deployed in this task manager")

    def overdue_commits(self) -> list[tuple[str, int, int]]:
        """Tasks that commit a checkpoint for longer than they may: its number, and how long."""
        if self._writing is None:
            return []
        timeout_ms = self._writing.order.timeout_ms
        with self._exchange.inside():
            found = self.commits_longer_than(timeout_ms)
        return [(task, checkpoint, timeout_ms) for task, checkpoint in found]

    def end_writing(self) -> None:
        """Nothing more is written for checkpoints; what is not acknowledged is removed."""
        if self._writing is not None:
            self._writing.close()

    def ends_within(self, timeout_s: float) -> bool:
        """Wait for all tasks to end, however; says whether they did."""
        deadline = time.monotonic() + timeout_s
        return all(
            deployed.thread.ends_within(max(0.0, deadline - time.monotonic()))
            for deployed in self.tasks
        )

    def close(self, timeout_s: float = 30.0) -> bool:
        """The job is over: cancel what still runs, wait for it, drop what nobody has read.

        Says whether everything has ended; what a task that hangs has written is left alone.
        """
        if not self.ends_within(0):
            self.cancel()
        ended = self.ends_within(timeout_s)
        self.end_writing()
        if not self._exchange.closed:
            with self._exchange.inside():
                self.release_partitions()
        return ended

    def _read(self, orders: Sequence[TaskOrder]) -> dict[str, TaskRestored]:
        if not any(order.restore for order in orders):
            return {}
        writing = self._writing
        assert writing is not None, "what is restored was written somewhere"
        with open_checkpoint(writing.order, writing.shared_uri) as reader:
            return self.read(orders, reader)


def _check_gate(task: AssembledTask[RunnerThread], gate: int) -> None:
    count = len(task.gates)
    if not count:
        raise InspectionRefused("it is a source: nothing waits in front of it")
    if not 0 <= gate < count:
        gates = "gate 0 only" if count == 1 else f"gates 0 to {count - 1}"
        raise InspectionRefused(f"it has {gates}, but no gate {gate}")


def _warn(text: str, error: BaseException | None) -> None:
    if error is None:
        log.warning("%s", text)
    else:
        log.warning("%s\n%s", text, readable_traceback(error).rstrip())
