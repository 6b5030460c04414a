"""The world of one run: takes step after step, and lets the checkers look after each.

A run is a function of its seed. It has failed when a law is broken, or when it makes no progress.
After trouble a task may wait for ever if it writes for a reader that has ended without ever asking
for its part, or if it reads from, or writes for, a task that may itself be stuck. All others must
have ended.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from traceback import extract_tb
from typing import Final

from headgate.base.settings import FlowControl
from headgate.core.egress.pipelined import PipelinedSubpartition
from headgate.core.task.environment import Input
from headgate.sim.clock import Clock
from headgate.sim.faults import Faults
from headgate.sim.network import Network, Weather
from headgate.sim.stage import Actor, Stage
from headgate.sim.worker import CheckFailed, SimWorker
from tests.sim.checks import Checks
from tests.sim.coordinator import Coordinator
from tests.sim.ledger import Ledger
from tests.sim.programs import Job
from tests.sim.scenario import JobPlan, Scenario, draw
from tests.sim.segments import remote_channels
from tests.sim.tasks import Fate

MAX_STEPS: Final = 200_000
STALL_MS: Final = 6_000
TRACE_LINES: Final = 40
IDLE: Final = (" tick of ", " flush of ")
"""Timers that fire all the time; a failure shows the steps before the last ones without them."""


class RunFailed(Exception):
    """A run broke a law. Says which, what happened before, and how to see it again."""

    def __init__(self, seed: int, problem: str, trace: list[str], family: str = "") -> None:
        self.seed = seed
        self.problem = problem
        self.trace = trace
        self.replay = f"make sim {family}SEED={seed}"
        lines = "\n".join(f"    {line}" for line in trace)
        super().__init__(
            f"seed {seed}: {problem}\n  last steps:\n{lines}\n  see it again: {self.replay}"
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run that kept all laws did."""

    seed: int
    calm: bool
    steps: int
    now_ms: float
    items: int
    fates: dict[str, str]
    faults: list[str]


class WatchedStage(Stage):
    """Knows when a task last did something."""

    task_stepped_ms = 0.0

    def _step_task(self, task: Actor) -> str:
        self.task_stepped_ms = self.clock.now_ms
        return super()._step_task(task)


class World:
    """All workers, tasks and wires of a run."""

    def __init__(self, scenario: Scenario, on_trace: Callable[[str], None] | None = None) -> None:
        seed = scenario.seed
        self.scenario = scenario
        self.clock = Clock()
        self.ledger = Ledger()
        self.steps = 0
        self.trace: deque[str] = deque(maxlen=TRACE_LINES)
        self._on_trace = on_trace or (lambda line: None)
        self._random = Random(f"steps {seed}")
        self.network = Network(self.clock, Random(f"network {seed}"), self._pick_weather)
        nonces = Random(f"workers {seed}")
        self.workers = [
            SimWorker(
                index,
                scenario.settings,
                scenario.segments(index),
                self.clock,
                self.network,
                nonces,
                scenario.tick_ms,
            )
            for index in range(scenario.workers)
        ]
        for worker in self.workers:
            worker.peers = self.workers
        self.coordinator = Coordinator(scenario, self.workers, self.clock, self._make_job)
        self.faults = Faults(
            scenario.faults, self.network, self.workers, self.coordinator, Random(f"faults {seed}")
        )
        self.checks = Checks(self.workers, self.coordinator, self.faults)
        self._running = list(self.coordinator.jobs.values())
        self.stage = WatchedStage(self.clock, self.workers, self._random, scenario.moods)
        self.stage.tasks = [job.task for job in self._running]
        self._progress_ms = 0.0

    def run(self) -> Outcome:
        """To the end; raises RunFailed."""
        try:
            self._run_tasks()
            self._wind_down()
        except Exception as error:
            raise RunFailed(self.scenario.seed, problem_of(error), list(self.trace)) from error
        finally:
            for job in self.coordinator.jobs.values():
                job.task.kill()
        return Outcome(
            self.scenario.seed,
            self.scenario.calm,
            self.steps,
            self.clock.now_ms,
            self.ledger.items_read,
            {job.name: job.task.fate.value for job in self.coordinator.jobs.values()},
            self.faults.struck,
        )

    def _run_tasks(self) -> None:
        while not self.coordinator.all_over:
            self._step()
            if self._stalled() and not self._unblock():
                raise CheckFailed(f"the run does not go on: {self._who_waits()}")

    def _unblock(self) -> bool:
        """Trouble may leave tasks stuck; a coordinator cancels these."""
        if not self.coordinator.troubled and not any(
            plan.start_ms is None for plan in self.scenario.jobs
        ):
            return False
        if self.coordinator.swept:
            return False
        check_stuck(self.coordinator)
        self._progress_ms = self.clock.now_ms
        self.coordinator.sweep()
        return True

    def _wind_down(self) -> None:
        """All tasks are over: connections must close, and every segment come home."""
        self._progress_ms = self.clock.now_ms
        alive = [worker for worker in self.workers if not worker.dead]
        while any(worker.connections or worker.waiting for worker in alive):
            self._step()
            alive = [worker for worker in self.workers if not worker.dead]
            if self._stalled():
                left = [connection.name for worker in alive for connection in worker.connections]
                raise CheckFailed(f"connections are left open: {left}")
        self.coordinator.release_outputs()
        self.checks.at_end()

    def _stalled(self) -> bool:
        if self.steps > MAX_STEPS:
            raise CheckFailed(f"no end after {MAX_STEPS} steps: {self._who_waits()}")
        progress_ms = max(self._progress_ms, self.stage.task_stepped_ms)
        return self.clock.now_ms - progress_ms > STALL_MS

    def _who_waits(self) -> str:
        return "; ".join(
            f"{job.name} ({job.task.fate.value}) waits for {job.task.waits_for}"
            for job in self.coordinator.jobs.values()
            if not job.task.is_over
        )

    # One step.

    def _step(self) -> None:
        self.steps += 1
        self.clock.advance(self.scenario.step_ms)
        fault = self.faults.next_due(self.steps)
        if fault is not None:
            what = self.faults.strike(fault, self.steps)
            done: str | None = f"{self.clock.now_ms:.3f} fault: {fault.kind} {what}"
        else:
            done = self.stage.act()
        if done is None:
            raise CheckFailed(f"nothing will ever happen again: {self._who_waits()}")
        self._trace(f"{self.steps} {done}")
        self.checks.laws.after_step(self.steps)
        self._note_ends()

    def _trace(self, line: str) -> None:
        if not any(idle in line for idle in IDLE):
            self.trace.append(line)
        self._on_trace(line)

    def _note_ends(self) -> None:
        for job in self._running:
            if job.task.is_over:
                self._running = [running for running in self._running if not running.task.is_over]
                self.stage.tasks = [running.task for running in self._running]
                self._progress_ms = self.clock.now_ms
                self.checks.task_over(job)
                self.coordinator.task_over(job)

    def _pick_weather(self) -> Weather:
        return self._random.choice(self.scenario.weathers)

    def _make_job(self, plan: JobPlan, inputs: list[list[Input]]) -> Job:
        worker = self.workers[plan.worker]
        random = Random(f"{plan.name} {self.scenario.seed}")
        return Job(plan.name, worker, plan.manners, plan.output, inputs, self.ledger, random)


def problem_of(error: Exception) -> str:
    """What went wrong, in a line; an assertion without words is told by its place."""
    if isinstance(error, CheckFailed):
        return str(error)
    frame = extract_tb(error.__traceback__)[-1]
    return f"{error!r} at {Path(frame.filename).name}:{frame.lineno}: {frame.line}"


def simulate(seed: int, on_trace: Callable[[str], None] | None = None) -> Outcome:
    """Run one seed; raises RunFailed with the command that replays it."""
    return World(draw(seed), on_trace).run()


def check_stuck(coordinator: Coordinator) -> None:
    """Raise if a task is stuck and no trouble explains it."""
    left = [job for job in coordinator.jobs.values() if not job.task.is_over]
    explained: list[str] = []
    grown = True
    while grown:
        grown = False
        for job in left:
            if job.name not in explained and _may_be_stuck(coordinator, job, explained):
                explained.append(job.name)
                grown = True
    for job in left:
        if job.name not in explained:
            raise CheckFailed(
                f"{job.name} waits for {job.task.waits_for}, and no trouble explains that"
            )


def _may_be_stuck(coordinator: Coordinator, job: Job, explained: list[str]) -> bool:
    producers = coordinator.producers_of(job.name)
    consumers = coordinator.consumers_of(job.name)
    if any(name in explained for name in (*producers, *consumers)):
        return True
    if job.task.fate is Fate.WAITING:
        return coordinator.never_starts(job.name) or any(
            coordinator.jobs[name].task.is_over
            and coordinator.jobs[name].task.fate is not Fate.FINISHED
            for name in producers
        )
    return _has_deserted_reader(coordinator, job) or _is_behind_another(coordinator, job)


def _is_behind_another(coordinator: Coordinator, job: Job) -> bool:
    """Without credits a channel that takes nothing stops the whole connection, by design."""
    settings = coordinator.scenario.settings
    if settings.flow_control is FlowControl.CREDIT or job.inbox is None:
        return False
    links = [channel._link for channel in remote_channels([job])]
    return any(link is not None and link.decoder.paused for link in links)


def _has_deserted_reader(coordinator: Coordinator, job: Job) -> bool:
    """A reader has ended, and its subpartition is still there."""
    output = job.output
    if output is None:
        return False
    for name, index in coordinator.readers_of(output.plan.partition):
        subpartition = output.partition.subpartitions[index]
        is_left = isinstance(subpartition, PipelinedSubpartition) and not subpartition.released
        if is_left and coordinator.jobs[name].task.is_over:
            return True
    return False
