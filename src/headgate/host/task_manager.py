"""A task manager: one worker process of a job, from its registration to its end.

``run_task_manager`` is all that Spark, or whoever starts processes, has to call. The calling thread
is an actor: orders of the driver and reports of tasks reach it through one queue. Law: it returns
when the driver says so and raises when the driver is gone, and then no thread, socket or file is
left; a task that does not come back from its user's code ends the process, if that is allowed.
"""

import gc
import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from headgate.base.errors import HeadgateError, TaskCancelled
from headgate.base.job_errors import DriverLost, RunRefused, TaskStuck
from headgate.base.messages import (
    Address,
    Cancel,
    Deploy,
    Heartbeat,
    Metrics,
    Placed,
    Refused,
    Register,
    Shutdown,
    TaskChanged,
    TaskManagerFailed,
    TimeAnnounced,
    TimeReported,
    ToTaskManager,
)
from headgate.base.settings import ExchangeSettings
from headgate.base.states import TaskState
from headgate.core.state.backend import Backends
from headgate.host.backends import open_backends
from headgate.host.contact import Contact
from headgate.host.control_client import ControlLine, Lost
from headgate.host.deployment import Deployment, JobInfo
from headgate.host.exchange import Exchange
from headgate.host.orders import describe, spec_of
from headgate.host.shipping import unship
from headgate.host.tracebacks import where_is

log = logging.getLogger(__name__)

STUCK_EXIT: Final = 70
"""The exit code of a process that ends because a user's function does not come back."""

SOURCE_THREAD: Final = "headgate-source "
"""How the name of a thread begins in which a user's source function runs."""

_SERVANTS: Final = ("headgate-control", "headgate-standby", "headgate-watchdog")
_WILDCARDS: Final = ("0.0.0.0", "::")
_DEFAULT_HOST: Final = ExchangeSettings().bind_host


@dataclass(frozen=True, slots=True)
class Reported:
    """A task has reached another state."""

    task: str
    state: TaskState
    error: BaseException | None


Mail: TypeAlias = ToTaskManager | Lost | Reported


def run_task_manager(
    contact: Contact,
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
    on_ready(lambda problem: inbox.put(Lost(problem)))

    def unheard() -> None:
        loading = threading.main_thread()
        _abandon("the job's code, which is being loaded,", [loading], may_exit)

    with ControlLine(contact, inbox.put, unheard) as line, ExitStack() as end:
        try:
            backends = end.enter_context(open_backends(contact.state))
            settings = replace(contact.settings, bind_host=_data_host(contact.settings, line))
            exchange = Exchange(settings, contact.secret, heap_bytes=contact.heap_bytes)
        except Exception as error:
            line.send(TaskManagerFailed(contact.stage, slot, describe(error)))
            raise
        end.callback(exchange.close)
        host, port = exchange.address[:2]
        address = (line.local_host if host in _WILDCARDS else host, port)
        line.send(Register(contact.stage, slot, address, os.getpid(), socket.gethostname()))
        manager = TaskManager(contact, line, exchange, address, inbox, may_exit, backends)
        with rare_collections():
            manager.serve()
    if strays := _threads(SOURCE_THREAD):
        _abandon("a user's source function", strays, may_exit)
    return manager.problem


class TaskManager:
    """Obeys the driver until the end of the run."""

    def __init__(
        self,
        contact: Contact,
        line: ControlLine,
        exchange: Exchange,
        address: Address,
        inbox: "queue.SimpleQueue[Mail]",
        may_exit: bool,
        backends: Backends | None = None,
    ) -> None:
        self._contact = contact
        self._times = contact.times
        self._line = line
        self._exchange = exchange
        self._address = address
        self._inbox = inbox
        self._may_exit = may_exit
        self._backends = backends
        self._deployment: Deployment | None = None
        self._run = ""
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
            if self._deployment is not None and self._open:
                self._deployment.cancel()
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
        if _now() >= self._measure_at:
            self._measure()

    def _obey(self, mail: Mail) -> None:
        match mail:
            case Reported():
                self._tell(mail.task, mail.state, mail.error)
            case Deploy():
                tasks = [task.id for task in mail.tasks]
                self._guard(lambda: self._deploy(mail), tasks)
            case Placed():
                self._guard(lambda: self._place(mail), list(self._open))
            case TimeAnnounced():
                if self._deployment is not None:
                    self._deployment.announce(mail.group, mail.watermark_ms)
            case Cancel():
                log.info("run %s is cancelled: %s", mail.run, mail.reason)
                self._cancel(self._times.cancel_ms)
            case Shutdown():
                self.problem = mail.problem
                self._leave(None, self._times.cancel_ms)
            case Refused():
                self._leave(RunRefused(mail.reason), self._times.lost_ms)
            case Lost():
                self._line.heard()
                self._leave(DriverLost(self._contact.driver, mail.problem), self._times.lost_ms)
            case Heartbeat():
                pass

    # Orders.

    def _deploy(self, order: Deploy) -> None:
        self._run = order.run
        self._open |= dict.fromkeys((task.id for task in order.tasks), TaskState.DEPLOYING)
        if self._deployment is None:
            assert order.code is not None, "the first tasks come with the job's code"
            info = JobInfo(order.job, order.attempt, order.parameters, self._times.marker_ms)
            code = order.code
            self._deployment = Deployment(
                self._exchange,
                unship(code),
                info,
                self._report,
                lambda: unship(code),
                self._backends,
            )
            self._deployment.on_time = self._tell_time
        self._deployment.deploy([spec_of(task) for task in order.tasks], order.places)

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

    def _report(self, task: str, state: TaskState, error: BaseException | None) -> None:
        """Called on the threads of the tasks."""
        self._inbox.put(Reported(task, state, error))

    def _tell_time(self, task: str, group: str, watermark_ms: int | None) -> None:
        """Called on the threads of source tasks."""
        self._line.send(TimeReported(self._run, task, group, watermark_ms))

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
        if self._deployment is not None and not self._line.has_backlog:
            self._line.send(Metrics(self._run, self._deployment.statistics()))

    def _give_up(self) -> None:
        tasks = ", ".join(self._open)
        _abandon(f"the user's code of task {tasks}", _threads("headgate-"), self._may_exit)
        self._error = self._error or TaskStuck(tasks)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let Python look for cyclic garbage less often: streams make many short-lived tuples.

    What is loaded already is not looked at again; cycles are still found, after more allocations.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _now() -> float:
    return time.monotonic()


def _data_host(settings: ExchangeSettings, line: ControlLine) -> str:
    """Where the data port listens: on the way to the driver, unless the user says otherwise."""
    return line.local_host if settings.bind_host == _DEFAULT_HOST else settings.bind_host


def _threads(prefix: str) -> list[threading.Thread]:
    """Those of tasks and sources, not those that serve them."""
    return [
        thread
        for thread in threading.enumerate()
        if thread.name.startswith(prefix) and thread.name not in _SERVANTS
    ]


def _abandon(what: str, threads: list[threading.Thread], may_exit: bool) -> None:
    places = "\n".join(f"{thread.name}:\n{where_is(thread)}" for thread in threads)
    log.critical("%s does not come back after its cancellation; it is here:\n%s", what, places)
    if may_exit:
        logging.shutdown()
        os._exit(STUCK_EXIT)
