"""One run of a job in the driver: its state machine, its lock and its task managers.

Law: events reach the machine under the lock, and its effects are carried out in order; callbacks
are called without the lock. Everybody who asks for a savepoint or an inspection is answered once.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from msgspec import structs

from headgate.base.checkpoints import SplitData, Stop
from headgate.base.errors import JobTakenOver, SavepointFailed, StorageUnusable
from headgate.base.figures import TaskManagerFigures
from headgate.base.inspections import Found, Inspection, ReadState
from headgate.base.job_records import LogLine
from headgate.base.messages import (
    CheckpointAcked,
    CheckpointDeclined,
    CheckpointWanted,
    ControlTimes,
    Failure,
    Inspect,
    Inspected,
    Logged,
    Metrics,
    Register,
    RowsSent,
    SourceTimeReported,
    SplitsWanted,
    StateLineOpened,
    TaskChanged,
    TaskFigures,
    TimeReported,
    ToDriver,
)
from headgate.control.deployment import RunPlan
from headgate.control.effects import (
    AttemptFailed,
    DiscardStates,
    DropCheckpoint,
    Effect,
    EndDiscovery,
    Outcome,
    Replan,
    RunEnded,
    SavepointDone,
    Send,
    StartDiscovery,
    StoreCheckpoint,
    Warn,
)
from headgate.control.job import JobRun
from headgate.control.life_cycle import JobState
from headgate.host.driver.checkpoint_keeper import CheckpointKeeper, JobFigures, JobRecords
from headgate.host.driver.control_peer import ControlPeer
from headgate.host.driver.discovery import Discovery
from headgate.host.driver.inspections import InspectionFutures, refused
from headgate.host.net.loop import now_ms
from headgate.host.shipping.failures import describe

log = logging.getLogger(__name__)

SHORT_BYTES: Final = 4096
"""Most bytes of keys in a question that whoever asks it sends over the line for reads."""
_GOES_ON = "it failed, and goes on from there"


@dataclass(frozen=True, slots=True)
class RunKey:
    """Which run: a job, one execution of it, and the number of its attempt."""

    job: str
    stage: str = ""
    generation: int = 0

    def __str__(self) -> str:
        return f"{self.job}/{self.stage}/{self.generation}"


OnEnded: TypeAlias = Callable[[RunKey, Outcome], None]
OnLogged: TypeAlias = Callable[[Sequence[LogLine]], None]


@dataclass(frozen=True, slots=True)
class RunHost:
    """What a run calls of its server; all but ``nudge`` are called without a lock."""

    nudge: Callable[[], None]
    """The next deadline may have changed."""
    replan: Callable[[], tuple[RunKey, RunPlan]]
    """Plans the next attempt of the run; raises if there can be none."""
    ended: OnEnded
    """The run is over."""
    logged: OnLogged
    """A task manager has sent lines of its log."""


class DriverRun:
    """A run, or what is known of it after its end. Any thread may call any method."""

    def __init__(
        self,
        key: RunKey,
        plan: RunPlan,
        times: ControlTimes,
        host: RunHost,
        keeper: CheckpointKeeper | None = None,
    ) -> None:
        """``keeper``: shared by all runs of the job; without it, there are no checkpoints."""
        self.key = key
        self.outcome: Outcome | None = None
        self._host = host
        self._keeper = keeper
        self._times = times
        # Guards machine, peers, figures and futures, and what the runs of a job share.
        self._lock = threading.Lock() if keeper is None else keeper.lock
        self._figures = JobFigures() if keeper is None else keeper.figures
        self.records = JobRecords() if keeper is None else keeper.records
        """What the job has met, as far as its runs share it."""
        with self._lock:
            self._machine = JobRun(plan, times, None if keeper is None else keeper.recovery)
            self._figures.attempt_ended()  # the last of an earlier run
            self._machine.begun(now_ms())
        self.records.attempt_begun()
        self.records.reached(self._machine.state)
        self._peers: dict[int, ControlPeer] = {}
        self._lines: dict[int, ControlPeer] = {}  # of some of the peers, for reads of state
        self._processes: dict[int, TaskManagerFigures] = {}  # of the peers
        self._hosts: dict[int, str] = {}  # of all that have registered
        self._savepoints = SavepointFutures()
        self._inspections = InspectionFutures()
        self._discovery = Discovery(self, lambda: self.log_facts)
        self._ended = threading.Event()
        self._listeners: list[Callable[[], None]] = []
        self._linger_until_ms: float | None = None
        self._clock_ms: float | None = None  # when it ticks at the latest; None: who knows
        self._log = self._job_log()

    @property
    def state(self) -> JobState:
        """State of the run; once it is one of its ends, the outcome is known, too."""
        with self._lock:
            return self._machine.state

    @property
    def figures(self) -> list[TaskFigures]:
        """The latest of each task, in the order of the plan; counts cover all attempts."""
        with self._lock:
            reported = self._figures.reported(task.id for task in self._machine.plan.tasks)
            unassigned = self._machine.unassigned_splits
        return [
            structs.replace(figure, unassigned_splits=count)
            if (count := unassigned.get(figure.task, 0))
            else figure
            for figure in self._figures.latest(reported)
        ]

    @property
    def tasks(self) -> tuple[str, ...]:
        """The ids of its tasks."""
        return tuple(task.id for task in self._machine.plan.tasks)

    @property
    def task_managers(self) -> list[TaskManagerFigures]:
        """The connected task managers, by slot; before the first report without figures."""
        with self._lock:
            return [self._processes[slot] for slot in sorted(self._processes)]

    @property
    def restored_from(self) -> str:
        """The checkpoint or savepoint that the present attempt goes on from; empty: none."""
        order = self._machine.plan.checkpoints
        return "" if order is None else order.restored_from

    @property
    def attempt(self) -> int:
        """The number of the present one."""
        return self._machine.plan.attempt

    def wait(self, timeout_s: float | None = None) -> Outcome | None:
        """Until the run has ended; None: the time has passed."""
        self._ended.wait(timeout_s)
        return self.outcome

    def when_ended(self, call: Callable[[], None]) -> None:
        """Call back when the run has ended, at once if it has; on a thread of the server."""
        with self._lock:
            if not self._ended.is_set():
                self._listeners.append(call)
                return
        call()

    def cancel(self, reason: str) -> None:
        self._report(lambda: self._machine.cancel(reason, now_ms()))

    def fail(self, failure: Failure) -> None:
        """The launcher of the task managers saw them fail; a task may report a better reason."""
        self._report(lambda: self._machine.failed(failure, now_ms()))

    def savepoint(self, directory: str, stop: Stop = Stop.NO) -> "Future[str]":
        """Take a savepoint in this unused directory, and perhaps stop the job with it.

        The result is the directory; with a stop it comes when the run has finished.
        """
        wanted: list[Future[str]] = []

        def asked() -> list[Effect]:
            wanted.append(self._savepoints.wanted(directory, stop))
            return self._machine.savepoint_wanted(directory, stop, now_ms())

        self._report(asked)
        return wanted[0]

    def inspect(self, task: str, what: Inspection, timeout_s: float) -> "Future[Found]":
        """Look at a task while it runs; raises nothing, and never harms the job.

        The future gets what was found, or ``InspectionFailed``; it is answered in any case, at the
        latest this long after the time that the inspection itself takes.
        """
        with self._lock:
            slot, problem = self._machine.slot_of(task)
            peer = self._peers.get(slot)
            if peer is None or problem:
                return refused(task, problem or "its task manager is gone")
            if self._inspections.is_full:
                return refused(task, "too many inspections of this job are under way")
            number, future = self._inspections.asked(task, slot, what, timeout_s, now_ms())
            question = Inspect(self._machine.plan.run, number, task, what)
            is_short = isinstance(what, ReadState) and sum(map(len, what.keys)) <= SHORT_BYTES
            line = self._lines.get(slot) if is_short else None
            if line is None:
                peer.post(question)
            first_ms, clock_ms = self._inspections.next_deadline_ms, self._clock_ms
        if line is not None:
            line.send_promptly(question)
        if first_ms is None or clock_ms is None or first_ms < clock_ms:
            self._host.nudge()  # seldom: its turn would come between a read and the answer
        return future

    def _job_log(self) -> "logging.LoggerAdapter[logging.Logger]":
        """What writes the lines of the present attempt."""
        plan = self._machine.plan
        facts = {"job": plan.job, "job_id": self.key.job, "attempt": plan.attempt}
        return logging.LoggerAdapter(log, facts)

    # For the server.

    @property
    def log_facts(self) -> dict[str, object]:
        """What lines about the run say, whichever attempt they are about."""
        return {"job": self._machine.plan.job, "job_id": self.key.job}

    @property
    def is_dead(self) -> bool:
        """Whether it has ended or is about to: no task manager can register any more."""
        return self.outcome is not None or self.state.is_ending

    @property
    def had_workers(self) -> bool:
        """Whether any task manager has ever registered."""
        with self._lock:
            return bool(self._hosts)

    def knows(self, slot: int) -> bool:
        with self._lock:
            return self._machine.knows(slot)

    def register(self, message: Register, peer: ControlPeer) -> str | None:
        """Register a task manager; returns why it is refused, if it is."""
        problem: str | None = None
        slot = message.slot

        def registered() -> list[Effect]:
            nonlocal problem
            problem = self._machine.refusal(slot)
            if problem is not None:
                return []
            self._peers[slot] = peer
            self._processes[slot] = TaskManagerFigures(slot, message.host, message.pid)
            self._hosts[slot] = f"{message.host}:{message.pid}"
            return self._machine.manager_registered(slot, message.data_address, now_ms())

        self._report(registered)
        return problem

    def line_opened(self, opened: StateLineOpened, line: ControlPeer) -> bool:
        """Reads of state are asked for on this line; False: its task manager is not here."""
        with self._lock:
            process = self._processes.get(opened.slot)
            if process is None or (process.host, process.pid) != (opened.host, opened.pid):
                return False
            has_older = opened.slot in self._lines  # it is lost, and its thread does not know yet
            calls = self._inspections.line_lost(opened.slot) if has_older else []
            self._lines[opened.slot] = line
        _make(calls)
        return True

    def line_lost(self, slot: int, line: ControlPeer) -> None:
        """What was asked on it and has no answer gets none."""
        with self._lock:
            if self._lines.get(slot) is not line:
                return
            del self._lines[slot]
            calls = self._inspections.line_lost(slot)
        _make(calls)

    def unfit(self, slot: int, failure: Failure) -> None:
        """The task manager of a slot could not start."""
        self._report(lambda: self._machine.manager_failed(slot, failure, now_ms()))

    def received(self, message: ToDriver) -> None:
        """Handle a message of a task manager; those of another run are ignored."""
        match message:
            case TaskChanged(run, task, state, failure):
                self._log.debug("run %s: task %s is %s", run, task, state.value)
                self._report(
                    lambda: self._machine.task_changed(run, task, state, failure, now_ms())
                )
            case TimeReported(run, task, group, watermark_ms):
                self._report(lambda: self._machine.time_reported(run, task, group, watermark_ms))
            case SplitsWanted():
                self._report(lambda: self._machine.splits_wanted(message))
            case SourceTimeReported():
                self._report(lambda: self._machine.source_time_reported(message))
            case RowsSent(run, slot, rows):
                self._report(lambda: self._machine.rows_sent(run, slot, rows, now_ms()))
            case CheckpointAcked() | CheckpointDeclined() | CheckpointWanted():
                self._log.debug("run %s: %s", message.run, type(message).__name__)
                self._report(lambda: self._machine.checkpoint_reported(message, now_ms()))
            case Inspected():
                with self._lock:
                    calls = self._inspections.answered(message)
                _make(calls)
            case Logged(_, lines):  # of any run: what was logged is true
                call_safely(self._host.logged, lines)
            case Metrics(run, figures, process) if run == str(self.key):
                with self._lock:
                    self._figures.measured(figures)
                    if process.slot in self._processes:
                        self._processes[process.slot] = process

    def lost(self, slot: int, peer: ControlPeer, problem: str) -> None:
        def gone() -> list[Effect]:
            if self._peers.get(slot) is not peer:
                return []
            del self._peers[slot], self._processes[slot]
            if (line := self._lines.pop(slot, None)) is not None:
                line.hang_up(problem)
            unanswered.extend(self._inspections.slot_lost(slot, problem))
            return self._machine.manager_lost(slot, problem, now_ms())

        unanswered: list[Callable[[], None]] = []
        self._report(gone)
        _make(unanswered)

    def supersede(self, slot: int) -> None:
        self._report(lambda: self._machine.superseded(slot, now_ms()))

    def give_up(self, reason: str) -> None:
        self._report(lambda: self._machine.given_up(reason, now_ms()))

    @property
    def is_gone(self) -> bool:
        """Whether it has ended and all task managers have disconnected."""
        return self.outcome is not None and not self._peers

    def next_deadline_ms(self) -> float | None:
        """For the clock, which ticks then at the latest."""
        with self._lock:
            deadline = self._machine.next_deadline_ms or self._linger_until_ms
            asked = self._inspections.next_deadline_ms
            self._clock_ms = deadline if asked is None else min(asked, deadline or asked)
            return self._clock_ms

    def tick(self) -> None:
        """Time has passed."""
        now = now_ms()
        with self._lock:
            late = self._inspections.tick(now)
            deadline = self._machine.next_deadline_ms or self._linger_until_ms
        _make(late)
        if deadline is None or deadline > now:
            return
        if self._linger_until_ms is not None:
            self._linger_until_ms = None
            self.hang_up("it did not leave after the end of its run")
        else:
            self._report(lambda: self._machine.tick(now))

    def hang_up(self, problem: str) -> None:
        with self._lock:
            peers = [*self._peers.values(), *self._lines.values()]
        for peer in peers:
            peer.hang_up(problem)

    def _report(self, event: Callable[[], list[Effect]]) -> None:
        calls: list[Callable[[], None]] = []  # to be made without the lock
        with self._lock:
            for effect in event():
                calls += self._carry_out(effect)
            if not (state := self._machine.state).has_ended:
                self.records.reached(state)
        self._host.nudge()
        _make(calls)

    def _carry_out(self, effect: Effect) -> list[Callable[[], None]]:
        """Under the lock, so that effects stay in order; returns what to call without it."""
        match effect:
            case Send(slot, message):
                self._peers[slot].post(message)
            case StartDiscovery(run, source):
                self._discovery.start(run, source)
            case EndDiscovery():
                self._discovery.end()
            case StoreCheckpoint():
                self._put(partial(self._store, effect))
            case DropCheckpoint():
                self._put(
                    partial(self._as_owner, partial(self._require_keeper().storage.drop, effect))
                )
            case DiscardStates():
                self._put(
                    partial(self._as_owner, partial(self._require_keeper().storage.discard, effect))
                )
            case SavepointDone():
                return self._savepoints.done(effect)
            case Warn(text):
                return [partial(self._log.warning, "run %s: %s", self.key, text)]
            case Replan():
                self._put(self._replan)
                unanswered = self._inspections.run_ended("the run restarts")
                return [*unanswered, *self._savepoints.attempt_ended(_GOES_ON)]
            case AttemptFailed(outcome):
                self._note_failure(outcome)
            case RunEnded(outcome):
                times = self._times
                self._linger_until_ms = now_ms() + 2 * max(times.cancel_ms, times.leave_ms)
                self.outcome = outcome
                self._note_failure(outcome)
                goes_on = outcome.restart_in_ms is not None
                self.records.reached(JobState.RESTARTING if goes_on else outcome.state)
                waiting = self._savepoints.attempt_ended(outcome.problem)
                waiting += self._inspections.run_ended(f"the run is {outcome.state.value}")
                return [*waiting, partial(self._end, outcome)]
        return []

    def _note_failure(self, outcome: Outcome) -> None:
        """Under the lock."""
        if outcome.failure is None:
            return
        plan = self._machine.plan
        task = next((task for task in plan.tasks if task.id == outcome.task), None)
        slot = outcome.slot if task is None else task.slot
        host = "" if slot is None else self._hosts.get(slot, "")
        self.records.failed(outcome.failure, plan.attempt, task, host)

    def _end(self, outcome: Outcome) -> None:
        self._log.info("run %s is %s", self.key, outcome.state.value)
        with self._lock:
            self._ended.set()
            listeners, self._listeners = self._listeners, []
        _make(listeners)
        call_safely(self._host.ended, self.key, outcome)

    # On the threads of enumerators (``DiscoveryListener``).

    def splits_discovered(
        self, run: str, uid: str, position: bytes, splits: Sequence[SplitData], is_last: bool
    ) -> None:
        discovered = partial(self._machine.splits_discovered, run, uid, position, splits, is_last)
        self._report(discovered)

    def discovery_failed(self, run: str, failure: Failure) -> None:
        self._report(lambda: self._machine.discovery_failed(run, failure, now_ms()))

    # On the keeper's thread.

    def _store(self, store: StoreCheckpoint) -> None:
        checkpoint, problem = store.metadata.checkpoint, ""
        try:
            self._as_owner(partial(self._require_keeper().storage.store, store))
        except Exception as error:  # the machine needs an answer in any case
            problem = str(error) or type(error).__name__
            self._log.warning(
                "run %s: checkpoint %d cannot be stored: %s", self.key, checkpoint, problem
            )
        else:
            self._log.info("run %s: checkpoint %d is complete", self.key, checkpoint)
        self._report(lambda: self._machine.stored(checkpoint, problem, now_ms()))

    def _as_owner(self, act: Callable[[], None]) -> None:
        """Access the storage; if another driver has claimed the job, this run is over."""
        try:
            act()
        except JobTakenOver as error:
            self.fail(describe(error))
            raise

    def _replan(self) -> None:
        try:
            key, plan = self._host.replan()
        except Exception as error:
            # A storage may recover; any other error would come again.
            is_final = not isinstance(error, StorageUnusable)
            failure = structs.replace(describe(error), is_final=is_final)
            self._report(lambda: self._machine.plan_failed(failure, now_ms()))
            return

        def planned() -> list[Effect]:
            effects = self._machine.planned(plan, now_ms())
            if effects:
                self.key = key
                self._log = self._job_log()
                self._figures.attempt_ended()
                self.records.attempt_begun()
            return effects

        self._report(planned)

    def _require_keeper(self) -> CheckpointKeeper:
        assert self._keeper is not None, f"run {self.key} keeps nothing"
        return self._keeper

    def _put(self, act: Callable[[], None]) -> None:
        self._require_keeper().put(act)


def call_safely(callback: Callable[..., None], *arguments: object) -> None:
    """Whatever an observer does wrong harms no run."""
    try:
        callback(*arguments)
    except Exception:
        log.exception("a callback of the control server failed")


def _make(calls: Iterable[Callable[[], None]]) -> None:
    for call in calls:
        call_safely(call)


class SavepointFutures:
    """Who waits for savepoints of a run; one thread at a time.

    Law: every future is resolved once, with the path or with the reason why there is no savepoint.
    With a stop it is resolved when the job has ended; if the job fails while it ends it resumes
    from the savepoint, which is reported as a failure that names the path. Answers are returned as
    calls, to be made without a lock.
    """

    def __init__(self) -> None:
        self._wanted: dict[str, tuple[Future[str], Stop]] = {}  # by the savepoint's directory
        self._ending: dict[str, Future[str]] = {}  # complete, and the job is to end
        self._ended: dict[str, str] = {}  # the job's end came before the savepoint's

    def wanted(self, directory: str, stop: Stop) -> "Future[str]":
        future: Future[str] = Future()
        self._wanted[directory] = future, stop
        return future

    def done(self, savepoint: SavepointDone) -> list[Callable[[], None]]:
        """The savepoint is complete, or has failed."""
        directory = savepoint.directory
        future, stop = self._wanted.pop(directory, (None, Stop.NO))
        if future is None:
            return []
        if savepoint.checkpoint is None:
            failure = SavepointFailed(directory, savepoint.error)
            return [partial(future.set_exception, failure)]
        if stop.ends:
            self._ending[directory] = future
            problem = self._ended.pop(directory, None)
            return [] if problem is None else self.attempt_ended(problem)
        return [partial(future.set_result, directory)]

    def attempt_ended(self, problem: str) -> list[Callable[[], None]]:
        """The run has ended or restarts; no ``problem``: it has finished."""
        ending, self._ending = self._ending, {}
        waiting = [directory for directory, (_, stop) in self._wanted.items() if stop.ends]
        self._ended = dict.fromkeys(waiting, problem) | self._ended
        if not problem:
            return [partial(future.set_result, path) for path, future in ending.items()]
        why = f"it is there, but the job has not ended with it: {problem}"
        return [
            partial(future.set_exception, SavepointFailed(path, why))
            for path, future in ending.items()
        ]
