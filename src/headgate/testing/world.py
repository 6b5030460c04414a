"""The world of a user's program: the simulated cluster, with the real driver, tasks and exchange.

Law: an exception of the program itself ends the run and is raised; what was done to the program on
purpose, and what follows from it, is not. Time moves only here.
"""

from collections.abc import Callable
from math import inf
from typing import Final

from headgate.base.checkpoints import Stop
from headgate.base.errors import (
    HarnessMisused,
    PartitionNotFound,
    ProducerFailed,
    TaskCancelled,
    TransportError,
)
from headgate.base.messages import TaskState
from headgate.control.effects import Outcome, StoreCheckpoint
from headgate.control.error_classes import is_consequence
from headgate.sim.clock import Clock
from headgate.sim.faults import Fault
from headgate.sim.jobs.scenario import JobScenario
from headgate.sim.jobs.sim_job import RecoveringJob
from headgate.sim.jobs.storage import SimStorage
from headgate.sim.jobs.task_manager import SimTask
from headgate.sim.jobs.world import SimWorld
from headgate.testing.scenario import ProgramScenario
from headgate.testing.virtual_time import virtual_time
from headgate.testing.watching import SimulatedFault

MOST_STEPS: Final = 2_000_000
MOST_TIMES: Final = 400
"""Steps of a disturbed run, as a multiple of those of a calm one."""
MOMENT_MS: Final = 1e-9
"""What is done at once takes less, also over a wire."""
CONSEQUENCES: Final = (PartitionNotFound, ProducerFailed, TaskCancelled, TransportError)
IN_WORDS: Final = {
    "driver": "the driver is lost",
    "savepoint": "a savepoint is taken",
    "suspend": "a savepoint is taken, and stops the job",
    "kill": "worker lost",
    "cut": "connection broken",
}
"""Faults and restarts of a program."""


class ProgramWorld(SimWorld):
    """All attempts of one run of a program."""

    job: RecoveringJob

    def __init__(self, plan: ProgramScenario, most_steps: int = MOST_STEPS) -> None:
        clock = Clock(plan.epoch_ms)
        super().__init__(plan.first, RecoveringJob(plan, clock), clock)
        self.plan = plan
        self._most_steps = most_steps
        self._troubles = list(plan.troubles)
        self._waited = 0
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
                    scenario = self.next_run(self.job)
            finally:
                self.close()

    def begin(self, scenario: JobScenario) -> None:
        super().begin(scenario)
        self._open = True

    def finish(self) -> None:
        """Until the present run has ended, and its tasks with it."""
        driver = self.driver
        while driver.outcome is None and not driver.is_gone:
            if not self.step():
                raise HarnessMisused(f"the program would wait for ever: {self.who_waits()}")
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
        if self.act(until_ms) is None:
            return False
        self.look_who_runs()
        self.note_ends()
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

    def failed_for_good(self, outcome: Outcome) -> None:
        failure = outcome.failure
        problem = outcome.reason if failure is None else failure.message
        raise HarnessMisused(f"the job has failed: {problem}")

    def disturb(self) -> str | None:
        driver = self.driver
        if driver.is_gone or driver.outcome is not None:
            return None
        fault = self.faults.next_due(self.steps)
        if fault is None and not self._is_due():
            return None
        what = self._strike(self._troubles.pop(0).kind if fault is None else fault.kind)
        self.struck.append(f"step {self.steps}: {what}")
        return what

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
        if kind == "error":
            self.plan.break_next()
            return "the next operator fails"
        whom = self.faults.strike(Fault(kind, self.steps), self.steps)
        return f"{IN_WORDS[kind]}: {whom}" if whom else IN_WORDS[kind]

    def ended(self, task: SimTask) -> None:
        error = task.task.lifecycle.failure or task.thread.error
        if task.state is TaskState.FAILED and error is not None:
            self._judge(task, error)

    def who_waits(self) -> str:
        return "; ".join(
            f"{task.thread.name} waits for {task.thread.waits_for}" for task in self.running
        )

    def _judge(self, task: SimTask, error: BaseException) -> None:
        if isinstance(error, SimulatedFault):
            self.struck.append(f"step {self.steps}: {error}")
        elif not task.thread.worker.dead and not self._follows(error):
            raise error

    def _follows(self, error: BaseException) -> bool:
        return isinstance(error, CONSEQUENCES) or is_consequence(error)
