"""One run of a job in the driver: its machine, its lock, and the task managers it talks to."""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from headgate.base.messages import (
    Address,
    ControlTimes,
    Failure,
    Metrics,
    TaskChanged,
    TaskFigures,
    TimeReported,
    ToDriver,
)
from headgate.base.states import TaskState
from headgate.control.deployment import RunPlan
from headgate.control.job import Effect, Ended, JobRun, Outcome, Send
from headgate.control.life import JobState
from headgate.host.control_peer import Peer
from headgate.host.loop import now_ms

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunKey:
    """Which run: a job, one execution of it, and how often that has begun anew."""

    job: str
    stage: str = ""
    generation: int = 0

    def __str__(self) -> str:
        return f"{self.job}/{self.stage}/{self.generation}"


OnEnded: TypeAlias = Callable[[RunKey, Outcome], None]
OnMetrics: TypeAlias = Callable[[RunKey, Sequence[TaskFigures]], None]


class Run:
    """A run that lives, or has ended. Every method may be called from any thread."""

    def __init__(
        self,
        key: RunKey,
        plan: RunPlan,
        times: ControlTimes,
        on_ended: OnEnded,
        on_metrics: OnMetrics,
        nudge: Callable[[], None],
    ) -> None:
        self.key = key
        self.outcome: Outcome | None = None
        self._machine = JobRun(plan, times)
        self._times = times
        self._lock = threading.Lock()  # of the machine, the peers and the figures
        self._peers: dict[int, Peer] = {}
        self._figures: dict[str, TaskFigures] = {}
        self._on_ended = on_ended
        self._on_metrics = on_metrics
        self._nudge = nudge
        self._ended = threading.Event()
        self._listeners: list[Callable[[], None]] = []
        self._linger_until_ms: float | None = None

    @property
    def state(self) -> JobState:
        return self._machine.state

    @property
    def task_states(self) -> dict[str, TaskState]:
        with self._lock:
            return dict(self._machine.states)

    @property
    def figures(self) -> list[TaskFigures]:
        """The latest of each task, in the order of the plan."""
        with self._lock:
            tasks = self._machine.plan.tasks
            return [self._figures[task.id] for task in tasks if task.id in self._figures]

    def wait(self, timeout_s: float | None = None) -> Outcome | None:
        """Until the run has ended; None: it has not within the time."""
        self._ended.wait(timeout_s)
        return self.outcome

    def when_ended(self, call: Callable[[], None]) -> None:
        """Call back once the run has ended, at once if it has; on a thread of the server."""
        with self._lock:
            if not self._ended.is_set():
                self._listeners.append(call)
                return
        call()

    def cancel(self, reason: str) -> None:
        self._tell(lambda: self._machine.cancel(reason, now_ms()))

    def fail(self, failure: Failure) -> None:
        """Whoever started the task managers saw them fail; a task may explain it better."""
        self._tell(lambda: self._machine.failed(failure, now_ms()))

    # For the server.

    @property
    def is_dead(self) -> bool:
        """Whether it has ended or is about to: nobody can join it any more."""
        return self.outcome is not None or self.state.is_ending

    def knows(self, slot: int) -> bool:
        with self._lock:
            return self._machine.knows(slot)

    def register(self, slot: int, address: Address, peer: Peer) -> str | None:
        """Take the task manager in; returns why not."""
        problem: str | None = None

        def registered() -> list[Effect]:
            nonlocal problem
            problem = self._machine.refusal(slot)
            if problem is not None:
                return []
            self._peers[slot] = peer
            return self._machine.manager_registered(slot, address, now_ms())

        self._tell(registered)
        return problem

    def unfit(self, slot: int, failure: Failure) -> None:
        """The task manager of a slot could not start."""
        self._tell(lambda: self._machine.manager_failed(slot, failure, now_ms()))

    def received(self, message: ToDriver) -> None:
        match message:
            case TaskChanged(run, task, state, failure):
                log.debug("run %s: task %s is %s", run, task, state.value)
                self._tell(lambda: self._machine.task_changed(run, task, state, failure, now_ms()))
            case TimeReported(run, task, group, watermark_ms):
                self._tell(lambda: self._machine.time_reported(run, task, group, watermark_ms))
            case Metrics(run, figures) if run == str(self.key):
                with self._lock:
                    self._figures.update((one.task, one) for one in figures)
                _call(self._on_metrics, self.key, figures)

    def lost(self, slot: int, peer: Peer, problem: str) -> None:
        def gone() -> list[Effect]:
            if self._peers.get(slot) is not peer:
                return []
            del self._peers[slot]
            return self._machine.manager_lost(slot, problem, now_ms())

        self._tell(gone)

    def supersede(self, slot: int) -> None:
        self._tell(lambda: self._machine.superseded(slot))

    def give_up(self, reason: str) -> None:
        self._tell(lambda: self._machine.given_up(reason))

    @property
    def is_gone(self) -> bool:
        """Whether it has ended and every task manager has left."""
        return self.outcome is not None and not self._peers

    @property
    def next_deadline_ms(self) -> float | None:
        with self._lock:
            return self._machine.next_deadline_ms or self._linger_until_ms

    def tick(self) -> None:
        """Time has passed."""
        now = now_ms()
        deadline = self.next_deadline_ms
        if deadline is None or deadline > now:
            return
        if self._linger_until_ms is not None:
            self._linger_until_ms = None
            self.hang_up("it did not leave after the end of its run")
        else:
            self._tell(lambda: self._machine.tick(now))

    def hang_up(self, problem: str) -> None:
        with self._lock:
            peers = list(self._peers.values())
        for peer in peers:
            peer.hang_up(problem)

    def _tell(self, event: Callable[[], list[Effect]]) -> None:
        outcome: Outcome | None = None
        with self._lock:
            for effect in event():
                match effect:
                    case Send(slot, message):
                        self._peers[slot].post(message)
                    case Ended(outcome):
                        self._linger_until_ms = now_ms() + 2 * self._times.cancel_ms
                        self.outcome = outcome
        self._nudge()
        if outcome is not None:
            log.info("run %s is %s", self.key, outcome.state.value)
            with self._lock:
                self._ended.set()
                listeners, self._listeners = self._listeners, []
            for call in listeners:
                _call(call)
            _call(self._on_ended, self.key, outcome)


def _call(callback: Callable[..., None], *arguments: object) -> None:
    try:
        callback(*arguments)
    except Exception:
        log.exception("a callback of the control server failed")
