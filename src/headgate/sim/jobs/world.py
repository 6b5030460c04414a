"""The world of a simulated job: workers, wires and a driver under one clock, run after run.

The scheduler chooses who moves next: a task that is awake, a connection that can read, flush or be
accepted, or a timer that is due; chance picks one of them. If there is none, the clock jumps to the
next timer. Whoever simulates says what happens to the job, decides what follows a run, and looks
at tasks that have ended. Law: time moves only here; a task takes its turn only if it was woken.
"""

from collections.abc import Callable, Sequence
from math import inf
from random import Random
from typing import Protocol, TypeAlias

from headgate.control.effects import Outcome
from headgate.control.life_cycle import JobState
from headgate.sim.clock import Clock
from headgate.sim.faults import Faults
from headgate.sim.jobs.driver import SimDriver
from headgate.sim.jobs.scenario import JobScenario
from headgate.sim.jobs.sim_job import RecoveringJob, SimJob
from headgate.sim.jobs.task_manager import SimTask
from headgate.sim.network import Network, NetworkConditions, SimConnection
from headgate.sim.worker import CheckFailed, SimWorker


class Actor(Protocol):
    """A task that can be stepped."""

    @property
    def name(self) -> str: ...

    @property
    def worker(self) -> SimWorker: ...

    @property
    def waits_for(self) -> str: ...

    @property
    def is_runnable(self) -> bool: ...

    def step(self) -> None: ...


Step: TypeAlias = tuple[str, SimWorker | None, Callable[[], str | None]]
"""The text for the trace, the worker that takes the step, and the action."""
NetworkStep: TypeAlias = tuple[SimWorker, SimConnection | None, bool]
"""A worker accepts a connection (None), or one of its connections reads (True) or flushes."""


class Scheduler:
    """``weights`` are the weights of tasks, network and timers in the choice."""

    def __init__(
        self,
        clock: Clock,
        workers: list[SimWorker],
        random: Random,
        weights: tuple[int, int, int] = (1, 1, 1),
    ) -> None:
        self.clock = clock
        self.workers = workers
        self.tasks: Sequence[Actor] = []
        self._random = random
        self._weights = weights

    def act(self, until_ms: float = inf) -> str | None:
        """Take one step and say what it was; None if nothing happens up to this time."""
        step = self._choose(until_ms)
        if step is None:
            return None
        label, worker, act = step
        detail = act()
        if worker is not None:
            worker.touched = True
        return f"{self.clock.now_ms:.3f} {label} {detail or ''}".rstrip()

    def _choose(self, until_ms: float) -> Step | None:
        while True:
            tasks = [task for task in self.tasks if task.is_runnable]
            network = self._network_steps()
            timers = self.clock.is_due
            if tasks or network or timers:
                break
            next_ms = self.clock.next_ms
            if next_ms is None or next_ms > until_ms:
                return None
            self.clock.jump()
        weights = self._weights
        sides = (bool(tasks) * weights[0], bool(network) * weights[1], timers * weights[2])
        dice = self._random.randrange(sum(sides))
        if dice < sides[0]:
            task = tasks[self._random.randrange(len(tasks))]
            return f"task {task.name}", task.worker, lambda: self._step_task(task)
        if dice < sides[0] + sides[1]:
            return _named(network[self._random.randrange(len(network))])
        label, call = self.clock.pop_due()
        return label, None, lambda: call()

    def _network_steps(self) -> list[NetworkStep]:
        steps: list[NetworkStep] = []
        for worker in self.workers:
            if worker.frozen:
                continue
            if worker.waiting:
                steps.append((worker, None, False))
            for connection in worker.connections:
                if connection.can_read:
                    steps.append((worker, connection, True))
                if connection.can_flush:
                    steps.append((worker, connection, False))
        return steps

    def _step_task(self, task: Actor) -> str:
        task.step()
        return task.waits_for


def _named(step: NetworkStep) -> Step:
    worker, connection, reads = step
    if connection is None:
        return f"{worker.name} accepts", worker, worker.accept
    if reads:
        return f"read {connection.name}", worker, connection.read
    return f"flush {connection.name}", worker, connection.flush


class SimWorld:
    """The world of one job. ``scenario`` is that of its first run."""

    driver: SimDriver
    faults: Faults
    scheduler: Scheduler
    workers: list[SimWorker]
    network: Network

    def __init__(self, scenario: JobScenario, job: SimJob, clock: Clock) -> None:
        self.job = job
        self.clock = clock
        self.steps = self.runs = 0
        self.struck: list[str] = []
        """The kinds of faults that have happened to the job."""
        self.running: list[SimTask] = []
        self._first = scenario
        self._random = Random(f"steps {scenario.seed}")
        self._known = 0  # tasks of the driver

    # Runs.

    def begin(self, scenario: JobScenario) -> None:
        """New workers, and a new driver."""
        seed, clock = f"{scenario.seed} {self.runs or ''}", self.clock
        self.network = Network(clock, Random(f"network {seed}"), self._pick_conditions)
        nonces = Random(f"workers {seed}")
        self.workers = [
            SimWorker(
                index, scenario.settings, scenario.segments(index), clock, self.network, nonces,
                scenario.tick_ms,
            )
            for index in range(scenario.workers)
        ]  # fmt: skip
        for worker in self.workers:
            worker.peers = self.workers
        self.driver = SimDriver(self.job, scenario, self.workers, clock)
        self.driver.on_attempt = self.new_attempt
        left = self.faults.left if self.runs else list(scenario.faults)
        chance = Random(f"faults {seed}")
        self.faults = Faults(left, self.network, self.workers, self.driver, chance)
        self.scheduler = Scheduler(clock, self.workers, self._random, scenario.weights)
        self.runs += 1
        self._known = 0

    def new_attempt(self) -> None:
        """One is about to be planned in the same workers."""
        self.network.refused.clear()
        self.look_who_runs()

    def next_run(self, job: RecoveringJob) -> JobScenario | None:
        """After a run; None: the job has come to its end."""
        outcome, savepoint = self.driver.outcome, self.driver.stopped_with
        if outcome is not None and outcome.state is JobState.FAILED:
            if outcome.restart_in_ms is None:
                self.failed_for_good(outcome)
        elif savepoint is not None:
            job.go_on_from(savepoint)
        elif outcome is not None and outcome.state is JobState.FINISHED:
            return None
        else:
            job.new_driver()
        return job.next_run()

    def failed_for_good(self, outcome: Outcome) -> None:
        """Nobody restarts the job; raises."""
        raise CheckFailed(f"the job has failed for good: {outcome.problem} {outcome.reason}")

    # One step.

    def act(self, until_ms: float = inf) -> str | None:
        """One step of anybody, in words; None: nothing happens up to this time."""
        self.steps += 1
        self.clock.advance(self._first.step_ms)
        return self.disturb() or self.scheduler.act(until_ms)

    def disturb(self) -> str | None:
        """Let a fault happen, if its time has come."""
        if self.driver.is_gone or self.driver.outcome is not None:
            return None
        fault = self.faults.next_due(self.steps)
        if fault is None:
            return None
        what = self.faults.strike(fault, self.steps)
        self.struck.append(fault.kind)
        return f"{self.clock.now_ms:.3f} fault: {fault.kind} {what}"

    def look_who_runs(self) -> None:
        """There may be new tasks."""
        tasks = self.driver.tasks
        if self._known < len(tasks):
            for task in tasks[self._known :]:
                self.began(task)
            self.running += tasks[self._known :]
            self._known = len(tasks)
            self.give_turns()

    def note_ends(self) -> None:
        """Look at tasks that are over."""
        over = [task for task in self.running if task.thread.is_over]
        if over:
            self.running = [task for task in self.running if not task.thread.is_over]
            self.give_turns()
            for task in over:
                self.ended(task)

    def give_turns(self) -> None:
        """From now on to all that run."""
        self.scheduler.tasks = [task.thread for task in self.running]

    def began(self, task: SimTask) -> None:
        """It was set up just now."""

    def ended(self, task: SimTask) -> None:
        """It is over."""

    def who_waits(self) -> str:
        """All that run, and for what they wait."""
        return "; ".join(
            f"{task.thread.name} ({task.state.value}) waits for {task.thread.waits_for}"
            for task in self.running
        )

    def _pick_conditions(self) -> NetworkConditions:
        return self._random.choice(self._first.wire_conditions)
