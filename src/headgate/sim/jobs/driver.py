"""The driver of a simulated job: the real machine of a run, and its lines.

Messages between driver and workers take a while and keep their order; so does what the storage has
to do. Law: nothing that a worker says after it was given up counts, nor anything after the driver's
own loss.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from random import Random
from typing import Final

from headgate.base.checkpoints import Stop
from headgate.base.errors import TaskManagerLost
from headgate.base.messages import (
    Cancel,
    CheckpointAborted,
    ControlTimes,
    SourceTimeReported,
    SplitsWanted,
    TaskChanged,
    TimeReported,
)
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
from headgate.core.operators.source_splits import pickled_position
from headgate.core.operators.split_discovery import pickled_splits
from headgate.functions.source import SplitEnumerator
from headgate.plan.job_graph import JobVertex
from headgate.sim.clock import Clock
from headgate.sim.jobs.scenario import JobScenario
from headgate.sim.jobs.sim_job import SimJob
from headgate.sim.jobs.task_manager import SimReport, SimTask, SimTaskManager, failure_of
from headgate.sim.worker import CheckFailed, SimWorker

TIMES: Final = ControlTimes(register_ms=2_000, settle_ms=20, loss_ms=5, cancel_ms=1_500)
HEARTBEAT_MS: Final = 30.0


class Line:
    """Messages on their way: each takes a while, and none overtakes another.

    A line that breaks loses those that have not arrived, and all that are put there later.
    """

    def __init__(self) -> None:
        self.is_broken = False
        self._last_ms = 0.0
        self._calls: deque[Callable[[], None]] = deque()

    def put(self, call: Callable[[], None], now_ms: float, delay_ms: float) -> float:
        """Says after how long to ``take``."""
        self._calls.append(call)
        self._last_ms = max(self._last_ms, now_ms + delay_ms)
        return max(0.0, self._last_ms - now_ms)

    def take(self) -> None:
        """The next one arrives."""
        call = self._calls.popleft()
        if not self.is_broken:
            call()


class SimDriver:
    """Drives one run."""

    def __init__(
        self, job: SimJob, scenario: JobScenario, workers: list[SimWorker], clock: Clock
    ) -> None:
        self.outcome: Outcome | None = None
        self.stopped_with: StoreCheckpoint | None = None
        """The savepoint that has ended the job."""
        self.is_gone = False
        self.has_cancelled = False
        self.on_attempt: Callable[[], None] = lambda: None
        """Another attempt is about to be planned in the same workers."""
        self.managers = [
            SimTaskManager(worker, scenario, job, self._said, self._set_up) for worker in workers
        ]
        self.tasks: list[SimTask] = []
        """The tasks of all attempts of the run."""
        self.given_up: list[SimWorker] = []
        self._job = job
        self._scenario = scenario
        self._clock = clock
        self._random = Random(f"driver {scenario.seed} {job.attempts}")
        self._stores: list[StoreCheckpoint] = []
        self._stops: dict[str, Stop] = {}
        self._enumerators: list[SplitEnumerator] = []
        self._up = [Line() for _ in workers]
        self._down = [Line() for _ in workers]
        self._frozen_ms: dict[int, float] = {}
        self._timer_ms: float | None = None
        self._machine = JobRun(job.plan_attempt(scenario.job_graph), TIMES, job.recovery)
        for slot, arrive_ms in enumerate(scenario.arrive_ms):
            clock.later(arrive_ms, f"slot {slot} registers", partial(self._arrived, slot))
        if job.notices_ms < inf:
            clock.later(HEARTBEAT_MS, "heartbeat", self._listen)

    @property
    def vertices(self) -> tuple[JobVertex, ...]:
        """Of the job, as this run has planned them."""
        return self._scenario.job_graph.vertices

    @property
    def shown(self) -> str:
        """For people who wonder."""
        return f"{self._machine.plan.run} is {self._machine.state.value}"

    @property
    def is_storing(self) -> bool:
        """Whether the storage has something to do; nobody goes on from there before it has."""
        return bool(self._stores)

    # What people and faults do (Victims).

    def names(self) -> list[str]:
        return [task.id for task in self._scenario.execution.tasks]

    def cancel_task(self, name: str) -> None:
        """The user cancels the job."""
        self._tell(lambda: self._machine.cancel("the user wants it", self._clock.now_ms))

    def savepoint(self, stop: Stop) -> None:
        """Somebody wants one, and perhaps the end of the job."""
        number = len(self._stops)
        stored = self._job.storage.savepoints  # a job that was restored has some of another run
        while (directory := f"savepoint {self._job.attempts}.{number}") in stored:
            number += 1
        self._stops[directory] = stop
        self._tell(lambda: self._machine.savepoint_wanted(directory, stop, self._clock.now_ms))

    def worker_lost(self, worker: SimWorker) -> None:
        """A worker has died; its connection tells soon."""
        for deployed in self.tasks:
            if deployed.thread.worker is worker and not deployed.thread.is_over:
                deployed.thread.kill()
        delay_ms = self._delay_ms
        self._clock.later(delay_ms, f"{worker.name} is gone", lambda: self._lost(worker, "reset"))

    def die(self) -> None:
        """The driver is lost, in the middle of whatever it does."""
        self.is_gone = True
        for store in self._stores:
            if self._random.random() < 0.5:  # it was just written
                self._job.stored(store)

    def hang_up(self) -> SimWorker | None:
        """A worker and the driver lose their connection, each learns it after a while.

        What was on the way is lost. The worker ends itself; None: there is none to lose.
        """
        workers = [manager.worker for manager in self.managers]
        alive = [worker for worker in workers if not worker.dead and worker not in self.given_up]
        if not alive:
            return None
        worker = self._random.choice(alive)
        self._up[worker.index].is_broken = self._down[worker.index].is_broken = True
        what = f"{worker.name} has hung up"
        self._clock.later(self._delay_ms, what, lambda: self._lost(worker, "reset"))
        worker.later(self._delay_ms, "end of itself", worker.die)
        return worker

    # The lines.

    def _said(self, worker: SimWorker, report: SimReport) -> None:
        """A worker tells the driver, in order."""
        line = self._up[worker.index]
        delay_ms = line.put(partial(self._heard, worker, report), self._now_ms, self._delay_ms)
        self._clock.later(delay_ms, f"{type(report).__name__} of {worker.name}", line.take)

    def _heard(self, worker: SimWorker, report: SimReport) -> None:
        if worker in self.given_up:
            return
        now_ms = self._clock.now_ms
        if isinstance(report, TaskChanged):
            run, task, state, failure = report.run, report.task, report.state, report.failure
            self._tell(lambda: self._machine.task_changed(run, task, state, failure, now_ms))
        elif isinstance(report, SplitsWanted):
            self._tell(partial(self._machine.splits_wanted, report))
        elif isinstance(report, SourceTimeReported):
            self._tell(partial(self._machine.source_time_reported, report))
        elif isinstance(report, TimeReported):
            run, task, group, time_ms = report.run, report.task, report.group, report.watermark_ms
            self._tell(lambda: self._machine.time_reported(run, task, group, time_ms))
        else:
            self._tell(partial(self._machine.checkpoint_reported, report, now_ms))

    def _send(self, send: Send) -> None:
        manager = self._manager(send.slot)
        line = self._down[manager.worker.index]
        delay_ms = line.put(partial(manager.receive, send), self._now_ms, self._delay_ms)
        what = f"{type(send.message).__name__} for slot {send.slot}"
        manager.worker.later(delay_ms, what, line.take)

    @property
    def _now_ms(self) -> float:
        return self._clock.now_ms

    @property
    def _delay_ms(self) -> float:
        return self._random.choice(self._scenario.delays.message)

    def _arrived(self, slot: int) -> None:
        worker = self._manager(slot).worker
        if self.is_gone:
            return
        problem = "it has ended" if worker.dead else self._machine.refusal(slot)
        if problem is not None:  # Spark tells that its process is not there
            error = TaskManagerLost(f"the process of slot {slot}", problem)
            self._tell(lambda: self._machine.failed(failure_of(error), self._clock.now_ms))
        elif worker.frozen:
            self._clock.later(HEARTBEAT_MS, f"slot {slot} registers", partial(self._arrived, slot))
        else:
            address, now_ms = worker.address, self._clock.now_ms
            self._tell(lambda: self._machine.manager_registered(slot, address, now_ms))

    def _listen(self) -> None:
        """Who is silent for too long is given up, and ends itself when it learns that."""
        if self.is_gone or self.outcome is not None:
            return
        now_ms = self._clock.now_ms
        for manager in self.managers:
            worker = manager.worker
            if worker.dead or worker in self.given_up:
                continue
            if not worker.frozen:
                self._frozen_ms.pop(worker.index, None)
            elif now_ms - self._frozen_ms.setdefault(worker.index, now_ms) >= self._patience_ms:
                self._lost(worker, "it is silent")
                worker.later(self._random.choice((0.0, 30.0)), "end of itself", worker.die)
        self._clock.later(HEARTBEAT_MS, "heartbeat", self._listen)

    @property
    def _patience_ms(self) -> float:
        return self._job.notices_ms

    def _lost(self, worker: SimWorker, problem: str) -> None:
        if worker in self.given_up:
            return
        self.given_up.append(worker)
        for slot, index in enumerate(self._scenario.worker_of):
            if index == worker.index:
                now_ms = self._clock.now_ms
                self._tell(partial(self._machine.manager_lost, slot, problem, now_ms))

    def _manager(self, slot: int) -> SimTaskManager:
        return self.managers[self._scenario.worker_of[slot]]

    def _set_up(self, deployed: SimTask) -> None:
        self.tasks.append(deployed)

    # The machine.

    def _tell(self, event: Callable[[], list[Effect]]) -> None:
        if self.is_gone:
            return
        effects = event()
        self._machine.check()
        for effect in effects:
            self._carry_out(effect)
        self._set_timer()

    def _carry_out(self, effect: Effect) -> None:
        storage, clock = self._job.storage, self._clock
        match effect:
            case Send():
                self._look_at(effect)
                self._send(effect)
            case StoreCheckpoint():
                self._stores.append(effect)
                delay_ms = self._random.choice(self._scenario.delays.store)
                clock.later(delay_ms, "storing", partial(self._store, effect))
            case DropCheckpoint():
                storage.drop(effect)
            case DiscardStates():
                storage.discard(effect)
            case SavepointDone(directory, _, error):
                if not error and self._stops[directory].ends:
                    self.stopped_with = storage.savepoints[directory]
                    self._job.ends_with(self.stopped_with)
            case Replan():
                self.stopped_with = None
                clock.later(self._delay_ms, "planning", self._replan)
            case RunEnded(outcome):
                self.outcome = outcome
            case StartDiscovery(run, source):
                position = b"" if source.restored is None else source.restored.position
                enumerator = source.create(position)
                self._enumerators.append(enumerator)
                look = partial(self._discover, run, source.uid, enumerator)
                clock.later(self._delay_ms, "discovery", look)
            case EndDiscovery():
                self._enumerators.clear()
            case Warn() | AttemptFailed():
                pass

    def _discover(self, run: str, uid: str, enumerator: SplitEnumerator) -> None:
        if self.is_gone or enumerator not in self._enumerators:
            return
        splits = pickled_splits(enumerator.discover())
        position = pickled_position(enumerator.position(), "an enumerator")
        interval_ms = enumerator.interval_ms
        is_last = interval_ms is None
        self._tell(lambda: self._machine.splits_discovered(run, uid, position, splits, is_last))
        if interval_ms is not None:
            look = partial(self._discover, run, uid, enumerator)
            self._clock.later(interval_ms, "discovery", look)

    def _look_at(self, send: Send) -> None:
        message = send.message
        self.has_cancelled = self.has_cancelled or isinstance(message, Cancel)
        if isinstance(message, CheckpointAborted) and self._scenario.calm:
            if "was complete first" in message.reason:  # several were on their way
                return
            raise CheckFailed(f"checkpoint {message.checkpoint} of a calm run: {message.reason}")

    def _store(self, store: StoreCheckpoint) -> None:
        if self.is_gone:
            return
        self._stores.remove(store)
        problem = ""
        if self._random.random() < self._job.store_fails:
            problem = "the disk is full"
        if not problem or self._random.random() < 0.5:  # or nobody knows whether it was written
            self._job.stored(store)
        checkpoint, now_ms = store.metadata.checkpoint, self._clock.now_ms
        self._tell(lambda: self._machine.stored(checkpoint, problem, now_ms))

    def _replan(self) -> None:
        if self.is_gone:
            return
        self.on_attempt()
        plan = self._job.plan_attempt(self._scenario.job_graph)
        self._tell(lambda: self._machine.planned(plan, self._clock.now_ms))

    def _set_timer(self) -> None:
        at_ms, known_ms = self._machine.next_deadline_ms, self._timer_ms
        if at_ms is None or (known_ms is not None and known_ms <= at_ms):
            return
        self._timer_ms = at_ms
        delay_ms = max(0.0, at_ms - self._clock.now_ms)
        self._clock.later(delay_ms, "the driver's clock", partial(self._tick, at_ms))

    def _tick(self, at_ms: float) -> None:
        if self._timer_ms == at_ms and not self.is_gone:
            self._timer_ms = None
            self._tell(lambda: self._machine.tick(self._clock.now_ms))
