"""The world of a user's program: the simulated cluster, with the real driver, tasks and exchange.

Law: an exception of the program itself ends the run and is raised; what was done to the program on
purpose, and what follows from it, is not. Time moves only here.
"""

from collections.abc import Callable
from math import inf
from random import Random
from typing import Final

from headgate.base.checkpoints import Stop
from headgate.base.errors import (
    HarnessMisused,
    PartitionNotFound,
    ProducerFailed,
    TaskCancelled,
    TransportError,
)
from headgate.base.messages import TaskState, TimeReported
from headgate.control.effects import Send, StoreCheckpoint
from headgate.control.error_classes import is_consequence
from headgate.control.life_cycle import JobState
from headgate.plan.job_graph import JobVertex
from headgate.sim.clock import Clock
from headgate.sim.faults import Fault, Faults
from headgate.sim.jobs.deployment import SimTask
from headgate.sim.jobs.driver import SimDriver
from headgate.sim.jobs.scenario import JobScenario
from headgate.sim.jobs.sim_job import RecoveringJob
from headgate.sim.jobs.storage import SimStorage
from headgate.sim.jobs.task_manager import SimReport
from headgate.sim.network import Network, NetworkConditions
from headgate.sim.scheduler import Scheduler
from headgate.sim.worker import SimWorker
from headgate.testing.scenario import ProgramScenario
from headgate.testing.virtual_time import virtual_time
from headgate.testing.watching import SimulatedFault

MOST_STEPS: Final = 2_000_000
MOST_TIMES: Final = 400
"""Steps of a disturbed run, as a multiple of those of a calm one."""
MOMENT_MS: Final = 1e-9
"""What is done at once takes less, also over a wire."""
CONSEQUENCES: Final = (PartitionNotFound, ProducerFailed, TaskCancelled, TransportError)
STOPS: Final = {"savepoint": Stop.NO, "suspend": Stop.SUSPEND}


class ProgramJob(RecoveringJob):
    """Counts its checkpoints."""

    stores = 0

    def stored(self, store: StoreCheckpoint) -> None:
        super().stored(store)
        self.stores += 1


class ProgramDriver(SimDriver):
    """The driver of a user's program; nobody freezes here, so nobody listens for signs of life."""

    @property
    def vertices(self) -> tuple[JobVertex, ...]:
        """Of the program, as this run has planned them."""
        return self._scenario.job_graph.vertices

    def _listen(self) -> None:
        """Workers that are lost are reported."""

    def _look_at(self, send: Send) -> None:
        """Checkpoints may be aborted."""

    def _heard(self, worker: SimWorker, report: SimReport) -> None:
        if not isinstance(report, TimeReported):
            super()._heard(worker, report)
        elif worker not in self.given_up:
            run, task, group = report.run, report.task, report.group
            watermark_ms = report.watermark_ms
            self._tell(lambda: self._machine.time_reported(run, task, group, watermark_ms))


class ProgramWorker(SimWorker):
    """A worker whose connections send no signs of life, so that time can jump."""

    def _tick(self) -> None:
        """Connections that break are reported."""


class ProgramWorld:
    """All attempts of one run of a program."""

    driver: ProgramDriver
    faults: Faults
    scheduler: Scheduler
    network: Network
    workers: list[SimWorker]

    def __init__(self, plan: ProgramScenario, most_steps: int = MOST_STEPS) -> None:
        self.plan = plan
        self.clock = Clock(plan.epoch_ms)
        self.job = ProgramJob(plan, self.clock)
        self.steps = self.runs = 0
        self.struck: list[str] = []
        """What has happened to the program, in words."""
        self.running: list[SimTask] = []
        self._most_steps = most_steps
        self._troubles = list(plan.troubles)
        self._waited = 0
        self._random = Random(f"steps {plan.seed}")
        self._known = 0
        self._open = False

    def restore(self, savepoint: StoreCheckpoint, storage: SimStorage) -> None:
        """Begin with what a savepoint holds."""
        self.job.storage = storage
        self.job.go_on_from(savepoint)

    def run_to_end(self) -> None:
        """All attempts; raises what the program raises."""
        with virtual_time(self.clock, self.plan.chance):
            scenario: JobScenario | None = self.plan.first
            try:
                while scenario is not None:
                    self.begin(scenario)
                    self.finish()
                    scenario = self._what_next()
            finally:
                self.close()

    def begin(self, scenario: JobScenario) -> None:
        """New workers, and a new driver."""
        seed, clock = f"{scenario.seed} {self.runs or ''}", self.clock
        self.network = Network(clock, Random(f"network {seed}"), self._pick_conditions)
        nonces = Random(f"workers {seed}")
        self.workers = [
            ProgramWorker(
                index, scenario.settings, scenario.segments(index), clock, self.network, nonces, 0.0
            )
            for index in range(scenario.workers)
        ]
        for worker in self.workers:
            worker.peers = self.workers
        self.driver = ProgramDriver(self.job, scenario, self.workers, clock)
        self.driver.on_attempt = self._new_attempt
        left = self.faults.left if self.runs else []
        chance = Random(f"faults {seed}")
        self.faults = Faults(left, self.network, self.workers, self.driver, chance)
        self.scheduler = Scheduler(clock, self.workers, self._random, scenario.weights)
        self.runs += 1
        self._known = 0
        self._open = True

    def finish(self) -> None:
        """Until the present run has ended, and its tasks with it."""
        driver = self.driver
        while driver.outcome is None and not driver.is_gone:
            if not self.step():
                raise HarnessMisused(f"the program would wait for ever: {self._who_waits()}")
        while not driver.is_gone and (self.running or driver.is_storing):
            if not self.step():
                break
        self.close()

    def settle(self, until_ms: float | None = None) -> None:
        """Everything that happens up to a moment of the clock; None: now."""
        until = self.clock.now_ms + MOMENT_MS if until_ms is None else until_ms
        with virtual_time(self.clock, self.plan.chance):
            while self.step(until):
                pass
            if until < inf:
                self.clock.now_ms = max(self.clock.now_ms, until)

    def step(self, until_ms: float = inf) -> bool:
        """One step of anybody; False: nothing happens up to this time."""
        self.steps += 1
        self.clock.advance(self.plan.first.step_ms)
        if not self._disturb_next() and self.scheduler.act(until_ms) is None:
            return False
        self._look_who_runs()
        self._note_ends()
        if self.steps > self._most_steps:
            raise HarnessMisused(
                f"the program had not ended after {self.steps} steps and "
                f"{self.clock.now_ms / 1000:.0f} s of virtual time; let its sources end, or give "
                f"run_local a duration_ms"
            )
        return True

    def close(self) -> None:
        """Nobody goes on; what the tasks held is gone with their workers."""
        if self._open:
            self._open = False
            for worker in self.workers:
                if not worker.dead:
                    worker.die()
            for task in [*self.driver.tasks]:
                task.thread.kill()
            self.running = []

    def cancel(self) -> None:
        """The tasks end, and close their functions."""
        if self._open:
            self.driver.cancel_task("")
            self.settle()

    def savepoint(self, stop: Stop) -> Callable[[], StoreCheckpoint | None]:
        """Take one; what it returns gives it, once it is there."""
        before = set(self.job.storage.savepoints)
        self.driver.savepoint(stop)
        stored = self.job.storage.savepoints
        return lambda: next((stored[name] for name in stored if name not in before), None)

    def describe(self) -> list[str]:
        """How the run went, in a few lines."""
        parallelism = {vertex.parallelism for vertex in self.plan.first.job_graph.vertices}
        return [
            f"parallelism: {', '.join(map(str, sorted(parallelism)))}, "
            f"workers: {len(self.workers)}, attempts: {self.job.attempts}, steps: {self.steps}",
            *self.struck,
        ]

    def _new_attempt(self) -> None:
        """In the same workers."""
        self.network.refused.clear()
        self._look_who_runs()

    def _what_next(self) -> JobScenario | None:
        outcome, job, savepoint = self.driver.outcome, self.job, self.driver.stopped_with
        if outcome is not None and outcome.state is JobState.FAILED:
            if outcome.restart_in_ms is None:
                failure = outcome.failure
                problem = outcome.reason if failure is None else failure.message
                raise HarnessMisused(f"the job has failed: {problem}")
        elif savepoint is not None:
            job.go_on_from(savepoint)
        elif outcome is not None and outcome.state is JobState.FINISHED:
            return None
        else:
            job.new_driver()
        return job.next_run()

    def _disturb_next(self) -> bool:
        driver = self.driver
        if driver.is_gone or driver.outcome is not None:
            return False
        fault = self.faults.next_due(self.steps)
        if fault is None and not self._is_due():
            return False
        kind = self._troubles.pop(0).kind if fault is None else fault.kind
        self.struck.append(f"step {self.steps}: {self._strike(kind)}")
        return True

    def _is_due(self) -> bool:
        """Whether the next trouble's checkpoint is there, and as many steps have passed since."""
        if not self._troubles or self.job.stores < self._troubles[0].checkpoints:
            return False
        self._waited += 1
        if self._waited <= self._troubles[0].steps:
            return False
        self._waited = 0
        return True

    def _strike(self, kind: str) -> str:
        driver = self.driver
        match kind:
            case "driver":
                driver.die()
                return "the driver is lost"
            case "error":
                self.plan.break_next()
                return "the next operator fails"
            case "suspend" | "savepoint":
                driver.savepoint(STOPS[kind])
                return "a savepoint is taken" + (", and stops the job" if kind == "suspend" else "")
            case _:
                whom = self.faults.strike(Fault(kind, self.steps), self.steps)
                return f"{'worker lost' if kind == 'kill' else 'connection broken'}: {whom}"

    def _look_who_runs(self) -> None:
        tasks = self.driver.tasks
        if self._known < len(tasks):
            self.running += tasks[self._known :]
            self._known = len(tasks)
            self.scheduler.tasks = [task.thread for task in self.running]

    def _note_ends(self) -> None:
        over = [task for task in self.running if task.thread.is_over]
        if not over:
            return
        self.running = [task for task in self.running if not task.thread.is_over]
        self.scheduler.tasks = [task.thread for task in self.running]
        for task in over:
            error = task.task.lifecycle.failure or task.thread.error
            if task.state is TaskState.FAILED and error is not None:
                self._judge(task, error)

    def _judge(self, task: SimTask, error: BaseException) -> None:
        if isinstance(error, SimulatedFault):
            self.struck.append(f"step {self.steps}: {error}")
        elif not task.thread.worker.dead and not self._follows(error):
            raise error

    def _follows(self, error: BaseException) -> bool:
        return isinstance(error, CONSEQUENCES) or is_consequence(error)

    def _who_waits(self) -> str:
        return "; ".join(
            f"{task.thread.name} waits for {task.thread.waits_for}" for task in self.running
        )

    def _pick_conditions(self) -> NetworkConditions:
        return self._random.choice(self.plan.first.wire_conditions)
