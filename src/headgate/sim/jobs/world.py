"""The world of one simulated job: takes step after step, and looks after each.

A run is a function of its seed. It has failed when a law is broken, when the sinks did not get what
the reference says, or when it makes no progress: a task that rests goes on only if it is woken.
"""

from collections import Counter, deque
from collections.abc import Callable
from random import Random
from typing import Final

from headgate.base.messages import TaskState
from headgate.sim.clock import Clock
from headgate.sim.faults import Faults
from headgate.sim.jobs.coordinator import JobCoordinator
from headgate.sim.jobs.deployment import Deployed
from headgate.sim.jobs.ends import Ends, some_of
from headgate.sim.jobs.scenario import JobScenario, draw_job
from headgate.sim.laws import Laws
from headgate.sim.ledger import CheckFailed
from headgate.sim.network import Network, Weather
from headgate.sim.stage import Stage
from headgate.sim.worker import SimWorker
from headgate.sim.world import (
    IDLE,
    STALL_MS,
    TRACE_LINES,
    Outcome,
    RunFailed,
    problem_of,
)

MOST_STEPS: Final = 1_000_000


class JobWorld:
    """All workers and tasks of a run."""

    def __init__(
        self, scenario: JobScenario, on_trace: Callable[[str], None] | None = None
    ) -> None:
        seed = scenario.seed
        self.scenario = scenario
        self.book = scenario.run.book
        self.clock = Clock()
        self.steps = 0
        self.trace: deque[str] = deque(maxlen=TRACE_LINES)
        self._on_trace = on_trace or (lambda line: None)
        self._random = Random(f"steps {seed}")
        network = Network(self.clock, Random(f"network {seed}"), self._pick_weather)
        nonces = Random(f"workers {seed}")
        self.workers = [
            SimWorker(
                index, scenario.settings, scenario.segments(index), self.clock, network, nonces,
                scenario.tick_ms,
            )
            for index in range(scenario.workers)
        ]  # fmt: skip
        for worker in self.workers:
            worker.peers = self.workers
        self.coordinator = JobCoordinator(scenario, self.workers)
        scenario.run.seats = self.coordinator
        self.faults = Faults(
            scenario.faults, network, self.workers, self.coordinator, Random(f"faults {seed}")
        )
        self.laws = Laws(self.workers, self.faults, scenario.settings)
        for worker, deployment in zip(self.workers, self.coordinator.deployments, strict=True):
            self.laws.holders[worker.name] = deployment.deployed
        self._ends = Ends(self.laws, self.clock, scenario.calm, lambda: self.coordinator.cancelled)
        self.stage = Stage(self.clock, self.workers, self._random, scenario.moods)
        self._running: list[Deployed] = []
        self._progress_ms = 0.0
        self.coordinator.on_deployed = self._look_who_runs

    def run(self) -> Outcome:
        """To the end; raises RunFailed."""
        try:
            while not self.coordinator.all_over:
                self._step()
                if self._is_stalled():
                    raise CheckFailed(f"the run does not go on: {self._who_waits()}")
            self._wind_down()
        except Exception as error:
            raise RunFailed(
                self.scenario.seed, problem_of(error), list(self.trace), "JOBS=1 "
            ) from error
        finally:
            for one in self.coordinator.tasks.values():
                one.seat.kill()
        return Outcome(
            self.scenario.seed,
            self.scenario.calm,
            self.steps,
            self.clock.now_ms,
            self.book.records_read,
            {one.name: one.state.value for one in self.coordinator.tasks.values()},
            self.faults.struck,
        )

    def _wind_down(self) -> None:
        """All tasks are over: connections must close, every segment come home."""
        self._progress_ms = self.clock.now_ms
        for deployment in self.coordinator.deployments:
            if not deployment.worker.dead:
                deployment.release_partitions()
        while left := [
            connection.name
            for worker in self.workers
            if not worker.dead
            for connection in worker.connections
        ]:
            self._step()
            if self._is_stalled():
                raise CheckFailed(f"connections are left open: {left}")
        self.laws.at_end()
        self._check_results()

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
        line = f"{self.steps} {done}"
        if not any(idle in line for idle in IDLE):
            self.trace.append(line)
        self._on_trace(line)
        self.laws.after_step(self.steps)
        if self.book.problems:
            raise CheckFailed(self.book.problems[0])
        self._note_ends()

    def _note_ends(self) -> None:
        for one in self._running:
            if one.is_over:
                self._look_who_runs()
                self._progress_ms = self.clock.now_ms
                if one.name not in self.coordinator.lost:
                    self._ends.check(one)
                    self.coordinator.task_over(one)

    def _look_who_runs(self) -> None:
        self._running = self.coordinator.running
        self.stage.tasks = [one.seat for one in self._running]

    def _is_stalled(self) -> bool:
        if self.steps > MOST_STEPS:
            raise CheckFailed(f"no end after {MOST_STEPS} steps: {self._who_waits()}")
        progress_ms = max(self._progress_ms, self.stage.task_stepped_ms)
        return self.clock.now_ms - progress_ms > STALL_MS

    def _who_waits(self) -> str:
        return "; ".join(
            f"{one.seat.name} ({one.state.value}) waits for {one.seat.waits_for}"
            for one in self.coordinator.running
        )

    def _pick_weather(self) -> Weather:
        return self._random.choice(self.scenario.weathers)

    # The end.

    def _check_results(self) -> None:
        """In a calm run the sinks have what the reference says, else nothing beyond it."""
        for sink, expected in self.scenario.expected.items():
            got = self.book.arrived.get(sink, Counter())
            beyond = got - expected
            if beyond:
                raise CheckFailed(f"sink {sink} got what was not sent: {some_of(beyond)}")
            missing = expected - got
            if missing and self.scenario.calm:
                raise CheckFailed(f"sink {sink} did not get {some_of(missing)}")
        lost = [self.coordinator.tasks[name] for name in self.coordinator.lost]
        vertices = self.scenario.job_graph.vertices
        self.book.check_closed(
            [
                f"{operator.id}.{one.spec.subtask}"
                for one in lost
                for operator in vertices[one.spec.vertex].chain.operators
            ]
        )
        if self.book.problems:
            raise CheckFailed(self.book.problems[0])
        if self.scenario.calm:
            for one in self.coordinator.tasks.values():
                if one.state is not TaskState.FINISHED:
                    raise CheckFailed(f"{one.seat.name} {one.state.value} in a calm run")


def simulate_job(seed: int, on_trace: Callable[[str], None] | None = None) -> Outcome:
    """Run one seed; raises RunFailed with the command that replays it."""
    return JobWorld(draw_job(seed), on_trace).run()
