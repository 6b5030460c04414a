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
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from msgspec import structs

from headgate.base.errors import CommitOverdue, DriverLost, HeadgateError, RunRefused, TaskStuck
from headgate.base.figures import UNKNOWN, TaskManagerFigures
from headgate.base.messages import (
    Cancel,
    Deploy,
    Heartbeat,
    Inspect,
    Logged,
    Metrics,
    Refused,
    Register,
    RowsSent,
    Shutdown,
    TaskChanged,
    TaskManagerFailed,
    TaskState,
    ToTaskManager,
)
from headgate.base.settings import ExchangeSettings
from headgate.core.buffers.global_pool import GlobalPool
from headgate.core.task.assembly import JobInfo, TaskAssembly
from headgate.core.task.runs import TaskReported, TaskRuns
from headgate.core.task.task import TaskListener
from headgate.host.checkpoints.snapshot_writer import SnapshotWriters, WriterPool
from headgate.host.files.owned_folder import sweep
from headgate.host.net.contact import DriverContact
from headgate.host.net.control_client import ConnectionLost, ControlConnection
from headgate.host.net.exchange import Exchange, rare_collections
from headgate.host.net.loop import now_ms
from headgate.host.shipping.code import unship
from headgate.host.shipping.failures import describe
from headgate.host.worker.backends import open_backends
from headgate.host.worker.deployment import Deployment, ExchangeWorker
from headgate.host.worker.exits import SOURCE_THREADS, TASK_THREADS, abandon, threads_of
from headgate.host.worker.inspections import Inspections
from headgate.host.worker.state_line import StateQuestions
from headgate.host.worker.worker_log import WorkerLog

log = logging.getLogger(__name__)

_WILDCARDS: Final = ("0.0.0.0", "::")
_DEFAULT_HOST: Final = ExchangeSettings().bind_host


Mail: TypeAlias = ToTaskManager | ConnectionLost | TaskReported


class RowOutlet(Protocol):
    """Where the rows of a job leave this process, if Spark takes them as rows of a DataFrame."""

    def limited(self, rows: int, sent: Callable[[int], None]) -> None:
        """So many rows are enough, all processes together.

        From now on ``sent`` is to be called with the number of rows that have left here so far.
        """


def run_task_manager(
    contact: DriverContact,
    slot: int,
    *,
    may_exit: bool = False,
    on_ready: Callable[[Callable[[str], None]], None] = lambda leave: None,
    outlet: RowOutlet | None = None,
) -> str:
    """Serve one slot until the driver ends the run; why it has not finished, or nothing.

    ``may_exit``: the process is ours to end. ``on_ready`` is told at the start what to call, with
    a reason and from any thread, if the tasks here have to end before the driver says so.
    """
    contact.adopt_path()
    inbox: queue.SimpleQueue[Mail] = queue.SimpleQueue()
    on_ready(lambda problem: inbox.put(ConnectionLost(problem)))

    def on_ignored_loss() -> None:
        abandon("the job's code, which is being loaded,", [threading.main_thread()], may_exit)

    with (
        WorkerLog(contact, slot, is_alone=may_exit) as lines,
        ControlConnection(contact, inbox.put, on_ignored_loss) as line,
        ExitStack() as end,
    ):
        end.callback(lambda: send_lines(lines, line))  # the last ones
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
        worker = ExchangeWorker(exchange, backends)
        manager = TaskManager(contact, line, worker, inbox, may_exit, threads, slot, lines, outlet)
        with rare_collections():
            manager.serve()
    if running := threads_of(SOURCE_THREADS):
        abandon("a user's source function", running, may_exit)
    return manager.problem


def send_lines(lines: WorkerLog, line: ControlConnection, run: str = "") -> None:
    """Send what was logged since the last time, if anything was."""
    if taken := lines.take():
        line.send(Logged(run, taken))


class TaskManager:
    """Obeys the driver until the end of the last run; see ``RunServices``."""

    def __init__(
        self,
        contact: DriverContact,
        line: ControlConnection,
        worker: ExchangeWorker,
        inbox: "queue.SimpleQueue[Mail]",
        may_exit: bool,
        threads: WriterPool,
        slot: int,
        lines: WorkerLog,
        outlet: RowOutlet | None = None,
    ) -> None:
        self.send = line.send
        self.post = inbox.put
        self.describe = describe
        self.problem = ""
        """Why the run has not finished, if it has ended and not finished."""
        self._contact = contact
        self._times = contact.times
        self._line = line
        self._worker = worker
        self._inbox = inbox
        self._may_exit = may_exit
        self._threads = threads
        self._process = ProcessFigures(slot)
        self._slot = slot
        self._lines = lines
        self._outlet = outlet
        self._code = b""
        self._error: HeadgateError | None = None
        self._measure_at_ms = now_ms() + self._times.metrics_ms
        self._runs: TaskRuns[Deployment] = TaskRuns(self, self._times.cancel_ms)
        runs = self._runs
        reads = StateQuestions(
            worker.exchange, contact, slot, lambda: (runs.run, runs.tasks), line.send
        )
        self._inspections = Inspections(line.send, reads)

    def serve(self) -> None:
        """Until the driver ends the run (returns) or is gone (raises)."""
        runs = self._runs
        try:
            while runs.open or not runs.leaving:
                if runs.is_stuck(now_ms()):
                    self._give_up()
                    break
                self._take_mail()
        finally:
            self._line.heard()
            self._inspections.close()
            if runs.tasks is not None:
                if runs.open:
                    runs.tasks.cancel()
                runs.tasks.end_writing()
        if self._error is not None:
            raise self._error

    def _take_mail(self) -> None:
        wake_at_ms, stuck_at_ms = self._measure_at_ms, self._runs.stuck_at_ms
        if stuck_at_ms is not None and self._runs.open:
            wake_at_ms = min(wake_at_ms, stuck_at_ms)
        try:
            mail = self._inbox.get(timeout=max(0.0, wake_at_ms - now_ms()) / 1000)
        except queue.Empty:
            pass
        else:
            self._obey(mail)
        if now_ms() >= self._measure_at_ms:
            self._measure()

    def _obey(self, mail: Mail) -> None:
        match mail:
            case TaskReported():
                self._runs.reported(mail, now_ms())
            case Shutdown():
                self.problem = mail.problem
                self._leave(None, self._times.cancel_ms)
            case Refused():
                self._leave(RunRefused(mail.reason), self._times.lost_ms)
            case ConnectionLost():
                self._line.heard()
                self._leave(DriverLost(self._contact.driver, mail.problem), self._times.lost_ms)
            case Inspect():
                self._inspections.asked(mail, self._runs.run, self._runs.tasks)
            case Heartbeat():
                pass
            case _:
                if isinstance(mail, Cancel):
                    log.info("run %s is cancelled: %s", mail.run, mail.reason)
                self._runs.received(mail, now_ms())

    def _leave(self, error: HeadgateError | None, within_ms: int) -> None:
        if not self._runs.leaving:
            self._error = error
            self._runs.leave(within_ms, now_ms())

    # Runs.

    def begin_run(self, order: Deploy, listener: TaskListener) -> Deployment:
        self._lines.run_began(order.job, order.attempt)
        self._code = code = order.code or self._code
        assert code, "the first tasks come with the job's code"
        if self._outlet is not None and order.rows_wanted is not None:
            report, run, slot = self._line.send, order.run, self._slot
            self._outlet.limited(order.rows_wanted, lambda rows: report(RowsSent(run, slot, rows)))
        exchange, writing = self._worker.exchange, None
        if order.checkpoints is not None:
            writing = SnapshotWriters(
                order.run,
                order.attempt,
                order.checkpoints,
                self._threads,
                self._line.send,
                exchange.loop.post,
            )
        info = JobInfo(order.job, order.attempt, order.parameters, self._times.marker_ms)
        assembly = TaskAssembly(
            self._worker, unship(code), info, listener, lambda: unship(code), writing
        )
        return Deployment(exchange, assembly, writing)

    def end_run(self, tasks: Deployment) -> bool:
        ended = tasks.close(max(self._times.cancel_ms, self._times.leave_ms) / 1000)
        if running := threads_of(SOURCE_THREADS):
            abandon("a user's source function", running, self._may_exit)
        if not ended:
            abandon("the user's code of a task", threads_of(TASK_THREADS), self._may_exit)
            self._leave(TaskStuck(f"of run {self._runs.run}"), 0)
        return ended

    def order_failed(self, error: Exception) -> None:
        # The driver gets the sentence of an error of ours, and says it; others may be bugs here.
        level = logging.INFO if isinstance(error, HeadgateError) else logging.ERROR
        log.log(level, "an order of the driver cannot be carried out", exc_info=error)

    def task_ended(self) -> None:
        """Its last figures come before its end."""
        self._measure()

    # Figures.

    def _measure(self) -> None:
        self._measure_at_ms = now_ms() + self._times.metrics_ms
        if not self._line.has_backlog:
            send_lines(self._lines, self._line, self._runs.run)
        tasks = self._runs.tasks
        if tasks is None:
            return
        if self._runs.stuck_at_ms is None:
            self._check_commits(tasks)
        if not self._line.has_backlog:
            process = self._process.figures(self._worker.environment.pool)
            self._line.send(Metrics(self._runs.run, tasks.report(), process))

    def _check_commits(self, tasks: Deployment) -> None:
        """One that does not end fails the job; its thread is left to the cancellation."""
        overdue = tasks.overdue_commits()
        for task, checkpoint, timeout_ms in overdue:
            failure = describe(CommitOverdue(task, checkpoint, timeout_ms))
            self._line.send(TaskChanged(self._runs.run, task, TaskState.FAILED, failure))
        if overdue:
            self._runs.cancel(now_ms())

    def _give_up(self) -> None:
        tasks = ", ".join(self._runs.open)
        threads = threads_of(TASK_THREADS)
        abandon(f"the user's code of task {tasks}", threads, self._may_exit)
        self._error = self._error or TaskStuck(tasks)


class ProcessFigures:
    """What the driver is told about this process."""

    def __init__(self, slot: int) -> None:
        self._constant = TaskManagerFigures(slot, socket.gethostname(), os.getpid(), _cores())

    def figures(self, pool: GlobalPool) -> TaskManagerFigures:
        """As they are now; ``pool`` holds the memory for exchanged data."""
        return structs.replace(
            self._constant,
            cpu_ms=time.process_time() * 1000,
            memory_bytes=_memory_bytes(),
            buffers=pool.total,
            buffers_free=len(pool.free),
        )


def _cores() -> int:
    """The number of cores that the process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_bytes() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):  # not on this platform
        return UNKNOWN
    return pages * os.sysconf("SC_PAGE_SIZE")


def _data_host(settings: ExchangeSettings, line: ControlConnection) -> str:
    """Where the data port listens: on the way to the driver, unless the user says otherwise."""
    return line.local_host if settings.bind_host == _DEFAULT_HOST else settings.bind_host
