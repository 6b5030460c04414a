"""The world of a simulated job: takes step after step, and looks after each.

A run is a function of its seed. It has failed when a law is broken, when the sinks did not get what
the reference says, or when it makes no progress, however often its clock ticks: a task that rests
goes on only if it is woken. After a run everything is home.
"""

from collections import Counter, deque
from collections.abc import Callable
from math import inf
from typing import ClassVar, Final

from headgate.base.messages import TaskState
from headgate.sim.clock import Clock
from headgate.sim.jobs.scenario import JobScenario
from headgate.sim.jobs.sim_job import SimJob
from headgate.sim.jobs.task_manager import SimTask
from headgate.sim.jobs.threads import SimThread
from headgate.sim.jobs.world import SimWorld
from headgate.sim.worker import CheckFailed
from tests.sim.jobs.ends import Ends, some_of
from tests.sim.jobs.random_jobs import DrawnJob, draw_job
from tests.sim.laws import Laws
from tests.sim.outcome import Outcome, RunFailed, problem_of
from tests.sim.tap import Tap

MOST_STEPS: Final = 1_000_000
PATIENCE_MS: Final = 2_500
"""A job that stands still for so long is cancelled if one of its tasks never begins."""
TRACE_LINES: Final = 40


class JobWorld(SimWorld):
    """Of one run; ``RecoveryWorld`` has several, one after the other."""

    name: ClassVar = "jobs"
    stall_ms: ClassVar = 6_000.0

    laws: Laws

    def __init__(
        self,
        scenario: DrawnJob,
        job: SimJob,
        on_trace: Callable[[str], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(scenario, job, clock or Clock())
        self.scenario = scenario
        self.observations = scenario.run.observations
        self.items = 0
        self.trace: deque[str] = deque(maxlen=TRACE_LINES)
        self.dead: list[str] = []
        """Places of tasks that ended with their workers."""
        self._on_trace = on_trace or (lambda line: None)
        self._held = scenario.held
        self._has_given_up = False
        self._progress: tuple[int, int, int] = (0, 0, 0)
        self._progress_ms = 0.0
        self._bytes_in = 0

    def run(self) -> Outcome:
        """To the end; raises RunFailed."""
        scenario = self.scenario
        try:
            self.run_all()
        except Exception as error:
            problem = problem_of(error)
            raise RunFailed(scenario.seed, problem, list(self.trace), self.name) from error
        finally:
            for task in self.driver.tasks:
                task.thread.kill()
        return Outcome(
            scenario.seed,
            scenario.calm,
            self.steps,
            self.clock.now_ms,
            self.items + self.observations.records_read,
            {task.name: task.state.value for task in self.driver.tasks},
            self.struck,
        )

    def run_all(self) -> None:
        """All runs, and a look at the results."""
        self.begin(self.scenario)
        while self.driver.outcome is None:
            self.step()
        self.wind_down()
        self._check_results()

    # Runs.

    def begin(self, scenario: JobScenario) -> None:
        super().begin(scenario)
        self.network.make_tap = Tap
        run = self.scenario.run
        run.attempt, run.threads = self.job.attempts, self
        self.laws = Laws(self.workers, self.faults, scenario.settings)
        for manager in self.driver.managers:
            self.laws.holders[manager.worker.name] = manager.tasks
        calm, driver = self.scenario.calm, self.driver
        self._ends = Ends(self.laws, self.clock, calm, lambda: driver.has_cancelled)

    def thread_of(self, task: str) -> SimThread:
        """By the name that functions know; the newest."""
        return next(t.thread for t in reversed(self.driver.tasks) if t.thread.name == task)

    def wind_down(self) -> None:
        """Tasks end, then connections must close, and every segment come home."""
        while self.running or self.driver.is_storing:
            self.step()
        for manager in self.driver.managers:
            if not manager.worker.dead:
                manager.release_partitions()
        while any(worker.connections for worker in self.workers if not worker.dead):
            self.step()
        self.laws.at_end()

    # One step.

    def step(self) -> None:
        done = self.act()
        if done is None:
            raise CheckFailed(f"nothing will ever happen again: {self.who_waits()}")
        line = f"{self.steps} {done}"
        if not (" tick of " in line or " flush of " in line or " heartbeat" in line):
            self.trace.append(line)  # without timers that fire all the time
        self._on_trace(line)
        self.laws.after_step(self.steps)
        self.check_observations()
        self.look_who_runs()
        self.note_ends()
        if self._held:
            self.give_turns()
        self._check_progress()

    def check_observations(self) -> None:
        """Raise what the functions have found."""
        if self.observations.problems:
            raise CheckFailed(self.observations.problems[0])

    def began(self, task: SimTask) -> None:
        self._ends.began(task)

    def give_turns(self) -> None:
        """All that run take their turns, but those that have not begun."""
        held = {task for task, at_ms in self._held.items() if self.clock.now_ms < at_ms}
        self.scheduler.tasks = [
            task.thread for task in self.running if task.name not in held or task.thread.cancelled
        ]

    def ended(self, task: SimTask) -> None:
        """Look at a task that is over."""
        if task.thread.worker.dead:
            operators = self.driver.vertices[task.order.vertex].chain.operators
            self.dead += [f"{operator.id}.{task.order.subtask}" for operator in operators]
        else:
            self._ends.check(task)
            _check_open(task)

    def _check_progress(self) -> None:
        ended, now_ms = self._known - len(self.running), self.clock.now_ms
        progress = (self.observations.records_read, ended, self.job.attempts)
        if progress != self._progress:
            self._progress, self._progress_ms = progress, now_ms
        waits_ms = now_ms - self._progress_ms
        if waits_ms > PATIENCE_MS and inf in self._held.values() and not self._has_given_up:
            self._give_up()
        if self.steps <= MOST_STEPS and waits_ms <= self.stall_ms:
            return
        # A long record in short buffers, one round trip each, is slow and no standstill.
        bytes_in = sum(gate.statistics().bytes_in for task in self.running for gate in task.gates)
        if self.steps > MOST_STEPS or bytes_in == self._bytes_in:
            raise CheckFailed(f"the job does not go on: {self.driver.shown}; {self.who_waits()}")
        self._bytes_in, self._progress_ms = bytes_in, now_ms

    def _give_up(self) -> None:
        """Somebody cancels a job of which a task never begins; whoever needs it not has ended."""
        edges = [
            (task.id, channel.producer)
            for task in self.scenario.execution.tasks
            for gate in task.gates
            for channel in gate
        ]
        tied = {task for task, at_ms in self._held.items() if at_ms == inf}
        while grown := {task for edge in edges if tied.intersection(edge) for task in edge} - tied:
            tied |= grown
        self._has_given_up = True
        for task in self.running:
            if task.name not in tied:
                raise CheckFailed(f"{task.thread.name} waits for {task.thread.waits_for}, idly")
        self.driver.cancel_task("")

    # The end.

    def _check_results(self) -> None:
        """In a calm run the sinks have what the reference says, else nothing beyond it."""
        for sink, expected in self.scenario.expected.items():
            got = self.observations.arrived.get(sink, Counter())
            beyond = got - expected
            if beyond:
                raise CheckFailed(f"sink {sink} got what was not sent: {some_of(beyond)}")
            missing = expected - got
            if missing and self.scenario.calm:
                raise CheckFailed(f"sink {sink} did not get {some_of(missing)}")
        self.observations.check_closed(self.dead)
        self.check_observations()
        if self.scenario.calm:
            for task in self.driver.tasks:
                if task.state is not TaskState.FINISHED:
                    raise CheckFailed(f"{task.thread.name} {task.state.value} in a calm run")


def _check_open(task: SimTask) -> None:
    """A task that has read everything has left no channel blocked."""
    if task.state is TaskState.FINISHED:
        for gate in task.gates:
            if any(gate._blocked):
                raise CheckFailed(f"{task.thread.name} has finished with a blocked channel")


def simulate_job(seed: int, on_trace: Callable[[str], None] | None = None) -> Outcome:
    """Run one seed; raises RunFailed with the command that replays it."""
    return JobWorld(draw_job(seed), SimJob(seed), on_trace).run()
