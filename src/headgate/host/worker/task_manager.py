"""A task manager: one worker process of a job, from its registration to its end.

``run_task_manager`` is all that Spark, or whoever starts processes, has to call. The calling thread
is an actor: orders of the driver and reports of tasks reach it through one queue. Law: it returns
when the driver says so and raises when the driver is gone, and then no thread, socket or file is
left; a task that does not come back from its user's code ends the process, if that is allowed. Runs
of the job follow each other in it: nothing of one begins before all tasks of the other have ended.
"""

import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

from headgate.base.errors import (
    CommitOverdue,
    DriverLost,
    HeadgateError,
    RunRefused,
    TaskCancelled,
    TaskStuck,
)
from headgate.base.messages import (
    Address,
    Cancel,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointDeclined,
    CheckpointTriggered,
    Deploy,
    Heartbeat,
    Metrics,
    OfRun,
    Placed,
    Refused,
    Register,
    Shutdown,
    TaskChanged,
    TaskManagerFailed,
    TaskState,
    TimeAnnounced,
    TimeReported,
    ToTaskManager,
)
from headgate.base.settings import ExchangeSettings
from headgate.core.state.backend import Backends
from headgate.host.checkpoints.snapshot_writer import SnapshotWriters, WriterPool
from headgate.host.files.owned_folder import sweep
from headgate.host.net.contact import DriverContact
from headgate.host.net.control_client import ConnectionLost, ControlConnection
from headgate.host.net.exchange import Exchange, rare_collections
from headgate.host.shipping.code import unship
from headgate.host.shipping.failures import describe
from headgate.host.shipping.orders import spec_of
from headgate.host.worker.backends import open_backends
from headgate.host.worker.deployment import Deployment
from headgate.host.worker.stuck import SOURCE_THREADS, TASK_THREADS, abandon, threads_of
from headgate.host.worker.task_setup import JobInfo

log = logging.getLogger(__name__)

_WILDCARDS: Final = ("0.0.0.0", "::")
_DEFAULT_HOST: Final = ExchangeSettings().bind_host


@dataclass(frozen=True, slots=True)
class Reported:
    """A task has reached another state."""

    run: str
    task: str
    state: TaskState
    error: BaseException | None


Mail: TypeAlias = ToTaskManager | ConnectionLost | Reported


def run_task_manager(
    contact: DriverContact,
    slot: int,
    *,
    may_exit: bool = False,
    on_ready: Callable[[Callable[[str], None]], None] = lambda leave: None,
) -> str:
    """Serve one slot until the driver ends the run; why it has not finished, or nothing.

    ``may_exit``: the process is ours to end. ``on_ready`` is told at the start what to call, with
    a reason and from any thread, if the tasks here have to end before the driver says so.
    """
    contact.adopt_path()
    inbox: queue.SimpleQueue[Mail] = queue.SimpleQueue()
    on_ready(lambda problem: inbox.put(ConnectionLost(problem)))

    def unheard() -> None:
        loading = threading.main_thread()
        abandon("the job's code, which is being loaded,", [loading], may_exit)

    with ControlConnection(contact, inbox.put, unheard) as line, ExitStack() as end:
        end.enter_context(contact.in_use())
        try:
            sweep()
            backends = end.enter_context(open_backends(contact.state))
            threads = WriterPool()
            end.callback(threads.close)
            settings = replace(contact.settings, bind_host=_data_host(contact.settings, line))
            exchange = Exchange(
                settings, contact.secret, segments=contact.segments, heap_bytes=contact.heap_bytes
            )
        except Exception as error:
            line.send(TaskManagerFailed(contact.stage, slot, describe(error)))
            raise
        end.callback(exchange.close)
        host, port = exchange.address[:2]
        address = (line.local_host if host in _WILDCARDS else host, port)
        line.send(Register(contact.stage, slot, address, os.getpid(), socket.gethostname()))
        manager = TaskManager(contact, line, exchange, address, inbox, may_exit, backends, threads)
        with rare_collections():
            manager.serve()
    if strays := threads_of(SOURCE_THREADS):
        abandon("a user's source function", strays, may_exit)
    return manager.problem


class TaskManager:
    """Obeys the driver until the end of the last run."""

    def __init__(
        self,
        contact: DriverContact,
        line: ControlConnection,
        exchange: Exchange,
        address: Address,
        inbox: "queue.SimpleQueue[Mail]",
        may_exit: bool,
        backends: Backends,
        threads: WriterPool,
    ) -> None:
        self._contact = contact
        self._times = contact.times
        self._line = line
        self._exchange = exchange
        self._address = address
        self._inbox = inbox
        self._may_exit = may_exit
        self._backends = backends
        self._threads = threads
        self._deployment: Deployment | None = None
        self._run = ""
        self._code = b""
        self._next_run = ""
        self._held: list[OfRun] = []  # for the next run, while tasks of this one are ending
        self._open: dict[str, TaskState] = {}  # tasks that have not ended
        self._leaving = False
        self._error: HeadgateError | None = None
        self.problem = ""
        """Why the run has not finished, if it has ended and not finished."""
        self._stuck_at: float | None = None
        self._measure_at = _now() + self._times.metrics_ms / 1000

    def serve(self) -> None:
        """Until the driver ends the run (returns) or is gone (raises)."""
        try:
            while self._open or not self._leaving:
                if self._is_stuck():
                    self._give_up()
                    break
                self._take_mail()
        finally:
            self._line.heard()
            if self._deployment is not None:
                if self._open:
                    self._deployment.cancel()
                self._deployment.end_writing()
        if self._error is not None:
            raise self._error

    def _is_stuck(self) -> bool:
        return self._stuck_at is not None and bool(self._open) and _now() >= self._stuck_at

    def _take_mail(self) -> None:
        wake_at = self._measure_at
        if self._stuck_at is not None and self._open:
            wake_at = min(wake_at, self._stuck_at)
        try:
            mail = self._inbox.get(timeout=max(0.0, wake_at - _now()))
        except queue.Empty:
            pass
        else:
            self._obey(mail)
            if self._next_run and not self._open and not self._leaving:
                self._begin_next()
        if _now() >= self._measure_at:
            self._measure()

    def _obey(self, mail: Mail) -> None:
        match mail:
            case Reported():
                if mail.run == self._run:
                    self._tell(mail.task, mail.state, mail.error)
            case Deploy() if mail.run not in (self._run, self._next_run):
                self._await_end(mail)
            case (
                Deploy()
                | Placed()
                | TimeAnnounced()
                | CheckpointTriggered()
                | CheckpointCompleted()
                | CheckpointAborted()
                | Cancel()
            ):
                if mail.run == self._next_run:
                    self._held.append(mail)
                elif mail.run == self._run:
                    self._carry_out(mail)
            case Shutdown():
                self.problem = mail.problem
                self._leave(None, self._times.cancel_ms)
            case Refused():
                self._leave(RunRefused(mail.reason), self._times.lost_ms)
            case ConnectionLost():
                self._line.heard()
                self._leave(DriverLost(self._contact.driver, mail.problem), self._times.lost_ms)
            case Heartbeat():
                pass

    # One run after the other.

    def _await_end(self, order: Deploy) -> None:
        """The first order of a new run; it is carried out when no task of this one is left."""
        self._next_run, self._held = order.run, [order]
        if self._open:
            self._cancel(self._times.cancel_ms)

    def _begin_next(self) -> None:
        if self._deployment is not None and not self._close_deployment(self._deployment):
            return
        self._run, self._next_run = self._next_run, ""
        self._stuck_at = None
        held, self._held = self._held, []
        for order in held:
            self._carry_out(order)

    def _close_deployment(self, deployment: Deployment) -> bool:
        """Let go of what the tasks of the last run have left; says whether nothing of them runs."""
        self._deployment = None
        ended = deployment.close(self._times.cancel_ms / 1000)
        if strays := threads_of(SOURCE_THREADS):
            abandon("a user's source function", strays, self._may_exit)
        if not ended:
            abandon("the user's code of a task", threads_of(TASK_THREADS), self._may_exit)
            self._leave(TaskStuck(f"of run {self._run}"), 0)
        return ended

    # Orders.

    def _carry_out(self, order: OfRun) -> None:
        match order:
            case Deploy():
                tasks = [task.id for task in order.tasks]
                self._guard(lambda: self._deploy(order), tasks)
            case Placed():
                self._guard(lambda: self._place(order), list(self._open))
            case Cancel():
                log.info("run %s is cancelled: %s", order.run, order.reason)
                self._cancel(self._times.cancel_ms)
            case _ if self._deployment is None:
                pass
            case TimeAnnounced():
                self._deployment.announce(order.group, order.watermark_ms)
            case CheckpointTriggered():
                self._trigger(self._deployment, order)
            case CheckpointCompleted():
                self._deployment.checkpoint_completed(order.checkpoint)
            case CheckpointAborted():
                self._deployment.checkpoint_aborted(order.checkpoint, order.reason)

    def _deploy(self, order: Deploy) -> None:
        self._open |= dict.fromkeys((task.id for task in order.tasks), TaskState.DEPLOYING)
        self._code = order.code or self._code
        if self._deployment is None:
            self._deployment = self._create_deployment(order)
        restores = {task.id: task.restore for task in order.tasks if task.restore is not None}
        specs = [spec_of(task) for task in order.tasks]
        self._deployment.deploy(specs, order.places, restores)

    def _create_deployment(self, order: Deploy) -> Deployment:
        assert self._code, "the first tasks come with the job's code"
        code, run = self._code, order.run
        deployment = Deployment(
            self._exchange,
            unship(code),
            JobInfo(order.job, order.attempt, order.parameters, self._times.marker_ms),
            partial(self._report, run),
            lambda: unship(code),
            self._backends,
            self._writing(order),
        )
        deployment.on_time = partial(self._tell_time, run)
        return deployment

    def _writing(self, order: Deploy) -> SnapshotWriters | None:
        if order.checkpoints is None:
            return None
        return SnapshotWriters(
            order.run,
            order.attempt,
            order.checkpoints,
            self._threads,
            self._line.send,
            self._exchange.loop.post,
        )

    def _trigger(self, deployment: Deployment, order: CheckpointTriggered) -> None:
        problem = deployment.trigger_checkpoint(order.task, order.checkpoint, order.options)
        if problem:
            declined = CheckpointDeclined(order.run, order.checkpoint, order.task, problem)
            self._line.send(declined)

    def _place(self, order: Placed) -> None:
        if self._deployment is not None and self._stuck_at is None:
            for producer, address in order.places.items():
                self._deployment.placed(producer, None if address == self._address else address)

    def _cancel(self, within_ms: int) -> None:
        deadline = _now() + within_ms / 1000
        self._stuck_at = min(deadline, self._stuck_at or deadline)
        if self._deployment is not None:
            self._deployment.cancel()

    def _leave(self, error: HeadgateError | None, within_ms: int) -> None:
        if self._leaving:
            return
        self._leaving = True
        self._error = error
        if self._open:
            self._cancel(within_ms)

    def _guard(self, act: Callable[[], None], tasks: list[str]) -> None:
        """An order that cannot be carried out fails the tasks that it concerns."""
        try:
            act()
        except Exception as error:
            state = TaskState.CANCELLED if isinstance(error, TaskCancelled) else TaskState.FAILED
            if state is TaskState.FAILED:
                log.exception("an order of the driver cannot be carried out")
            for task in tasks:
                self._tell(task, state, error)

    # Reports.

    def _report(self, run: str, task: str, state: TaskState, error: BaseException | None) -> None:
        """Called on the threads of the tasks."""
        self._inbox.put(Reported(run, task, state, error))

    def _tell_time(self, run: str, task: str, group: str, watermark_ms: int | None) -> None:
        """Called on the threads of source tasks."""
        self._line.send(TimeReported(run, task, group, watermark_ms))

    def _tell(self, task: str, state: TaskState, error: BaseException | None) -> None:
        if task not in self._open:
            return
        self._open[task] = state
        if state.has_ended:
            del self._open[task]
            self._measure()  # its last figures come before its end
        failure = describe(error) if error is not None and state is TaskState.FAILED else None
        self._line.send(TaskChanged(self._run, task, state, failure))

    def _measure(self) -> None:
        self._measure_at = _now() + self._times.metrics_ms / 1000
        self._look_at_commits()
        if self._deployment is not None and not self._line.has_backlog:
            self._line.send(Metrics(self._run, self._deployment.statistics()))

    def _look_at_commits(self) -> None:
        """One that does not end fails the job; its thread is left to the cancellation."""
        if self._deployment is None or self._stuck_at is not None:
            return
        for task, checkpoint, timeout_ms in self._deployment.overdue_commits():
            failure = describe(CommitOverdue(task, checkpoint, timeout_ms))
            self._line.send(TaskChanged(self._run, task, TaskState.FAILED, failure))
            self._cancel(self._times.cancel_ms)

    def _give_up(self) -> None:
        tasks = ", ".join(self._open)
        threads = threads_of(TASK_THREADS)
        abandon(f"the user's code of task {tasks}", threads, self._may_exit)
        self._error = self._error or TaskStuck(tasks)


def _now() -> float:
    return time.monotonic()


def _data_host(settings: ExchangeSettings, line: ControlConnection) -> str:
    """Where the data port listens: on the way to the driver, unless the user says otherwise."""
    return line.local_host if settings.bind_host == _DEFAULT_HOST else settings.bind_host
