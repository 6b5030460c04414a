"""The world of a job that takes checkpoints: run after run, until it has come to its end.

Law: whatever has befallen it, its sinks have committed what the reference says; with barriers that
do not wait (at least once) all of that, and perhaps some of it twice. After each run everything is
home, and a run that makes no progress has failed, however often its clock ticks.
"""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Final

from headgate.base.checkpoints import Stop
from headgate.base.messages import TaskState
from headgate.control.life_cycle import JobState
from headgate.sim.clock import Clock
from headgate.sim.faults import Faults
from headgate.sim.jobs.deployment import Deployed
from headgate.sim.jobs.driver import SimDriver
from headgate.sim.jobs.ends import Ends, some_of
from headgate.sim.jobs.records import Book
from headgate.sim.jobs.recovery_scenario import Deed, RecoveryScenario, draw_recovery
from headgate.sim.jobs.scenario import JobScenario
from headgate.sim.jobs.sim_job import SimJob
from headgate.sim.laws import Laws
from headgate.sim.ledger import CheckFailed
from headgate.sim.network import Network, Weather
from headgate.sim.stage import Stage
from headgate.sim.worker import SimWorker
from headgate.sim.world import IDLE, TRACE_LINES, Outcome, RunFailed, problem_of

MOST_STEPS: Final = 600_000
STALL_MS: Final = 30_000
STOPS: Final = {"savepoint": Stop.NO, "suspend": Stop.SUSPEND, "drain": Stop.DRAIN}
QUIET: Final = (*IDLE, " heartbeat")


class RecoveryWorld:
    """All runs of a job, one after the other."""

    driver: SimDriver
    laws: Laws
    stage: Stage
    faults: Faults
    workers: list[SimWorker]

    def __init__(
        self, plan: RecoveryScenario, on_trace: Callable[[str], None] | None = None
    ) -> None:
        self.plan = plan
        self.clock = Clock()
        self.job = SimJob(plan, self.clock)
        self.steps = self.runs = self.items = 0
        self.struck: list[str] = []
        self.trace: deque[str] = deque(maxlen=TRACE_LINES)
        self._on_trace = on_trace or (lambda line: None)
        self._random = Random(f"steps {plan.seed}")
        self._faults = list(plan.first.faults)
        self._deeds = list(plan.deeds)
        self._running: list[Deployed] = []
        self._dead: list[str] = []  # places of tasks that ended with their workers
        self._book = plan.first.run.book
        self._rescaled_at = 0  # the first attempt with the present parallelism
        self._progress: tuple[int, int, int] = (0, 0, 0)
        self._progress_ms = 0.0

    def run(self) -> Outcome:
        """To the end; raises RunFailed."""
        try:
            scenario: JobScenario | None = self.plan.first
            while scenario is not None:
                self._run_once(scenario)
                rescaled = self.job.rescaled
                scenario = self._what_next()
                if self.job.rescaled > rescaled:
                    self._rescaled_at = self.job.attempts + 1
                    self._book.unordered_before = self._rescaled_at
            self._check_results()
        except Exception as error:
            raise RunFailed(
                self.plan.seed, problem_of(error), list(self.trace), "RECOVERY=1 "
            ) from error
        finally:
            for one in self.driver.tasks:
                one.seat.kill()
        return Outcome(
            self.plan.seed,
            self.plan.calm,
            self.steps,
            self.clock.now_ms,
            self.items,
            {one.name: one.state.value for one in self.driver.tasks},
            self.struck,
        )

    # Runs.

    def _run_once(self, scenario: JobScenario) -> None:
        self._begin(scenario)
        driver = self.driver
        while driver.outcome is None and not driver.is_gone:
            self._step()
        if driver.is_gone:
            self._kill(self.workers)
            self._new_book()
            return
        self._kill([one for one in self.workers if one.frozen or one in driver.given_up])
        while self._running or driver.is_storing:
            self._step()
        self._wind_down()
        self._kill(self.workers)
        self._new_book()

    def _begin(self, scenario: JobScenario) -> None:
        seed, clock = f"{scenario.seed} {self.runs or ''}", self.clock
        self.runs += 1
        network = Network(clock, Random(f"network {seed}"), self._pick_weather)
        nonces = Random(f"workers {seed}")
        self.workers = [
            SimWorker(
                index, scenario.settings, scenario.segments(index), clock, network, nonces,
                scenario.tick_ms,
            )
            for index in range(scenario.workers)
        ]  # fmt: skip
        for worker in self.workers:
            worker.peers = self.workers
        self._network = network
        self.driver = SimDriver(self.job, scenario, self.workers, clock)
        self.driver.on_attempt = self._new_attempt
        left = self._faults if self.runs == 1 else self.faults.left
        self.faults = Faults(left, network, self.workers, self.driver, Random(f"faults {seed}"))
        self.laws = Laws(self.workers, self.faults, scenario.settings)
        for manager in self.driver.managers:
            self.laws.holders[manager.worker.name] = manager.deployment.deployed
        self._ends = Ends(self.laws, clock, scenario.calm, lambda: self.driver.has_cancelled)
        self.stage = Stage(clock, self.workers, self._random, scenario.moods)
        self._known = 0

    def _new_attempt(self) -> None:
        """In the same workers."""
        self._network.refused.clear()
        self._look_who_runs()
        self._new_book()

    def _new_book(self) -> None:
        """All tasks of an attempt have ended."""
        book = self._book
        book.check_closed(self._dead)
        if book.problems:
            raise CheckFailed(book.problems[0])
        self.items += book.records_read
        self._dead = []
        self._book = self.plan.first.run.book = Book()
        self._book.unordered_before = self._rescaled_at

    def _what_next(self) -> JobScenario | None:
        """After a run; None: the job has come to its end."""
        outcome, job, savepoint = self.driver.outcome, self.job, self.driver.stopped_with
        if outcome is not None and outcome.state is JobState.FAILED:
            if outcome.restart_in_ms is None:
                problem = f"{outcome.problem} {outcome.reason}"
                raise CheckFailed(f"the job has failed for good: {problem}")
        elif savepoint is not None:
            job.go_on_from(savepoint)
        elif outcome is not None and outcome.state is JobState.FINISHED:
            return None
        else:
            job.new_driver()
        return job.next_run()

    def _kill(self, workers: list[SimWorker]) -> None:
        """Their processes end."""
        for worker in workers:
            if not worker.dead:
                self._network.refused.append(worker.name)
                self.faults.frozen.append(worker.name)
                worker.die()
        for one in self._running:
            if one.seat.worker.dead and not one.is_over:
                one.seat.kill()
        self._note_ends()

    def _wind_down(self) -> None:
        """All tasks are over: connections must close, every segment come home."""
        for manager in self.driver.managers:
            if not manager.worker.dead:
                manager.deployment.release_partitions()
        while any(worker.connections for worker in self.workers if not worker.dead):
            self._step()
        self.laws.at_end()

    # One step.

    def _step(self) -> None:
        self.steps += 1
        self.clock.advance(self.plan.first.step_ms)
        done = self._befall()
        if done is None:
            done = self.stage.act()
        if done is None:
            raise CheckFailed(f"nothing will ever happen again: {self._who_waits()}")
        line = f"{self.steps} {done}"
        if not any(quiet in line for quiet in QUIET):
            self.trace.append(line)
        self._on_trace(line)
        self.laws.after_step(self.steps)
        problems = self._book.problems or self.job.vault.problems
        if problems:
            raise CheckFailed(problems[0])
        self._look_who_runs()
        self._note_ends()
        self._check_progress()

    def _befall(self) -> str | None:
        """What happens to the job from outside, if its time has come."""
        driver = self.driver
        is_over = driver.outcome is not None or driver.is_gone
        if not is_over and self._deeds and self._deeds[0].step <= self.steps:
            deed = self._deeds.pop(0)
            self.struck.append(deed.kind)
            self._do(deed)
            return f"{self.clock.now_ms:.3f} deed: {deed.kind}"
        fault = None if is_over else self.faults.next_due(self.steps)
        if fault is None:
            return None
        what = self.faults.strike(fault, self.steps)
        self.struck.append(fault.kind)
        return f"{self.clock.now_ms:.3f} fault: {fault.kind} {what}"

    def _do(self, deed: Deed) -> None:
        if deed.kind == "driver":
            self.driver.die()
        elif deed.kind == "cancel":
            self.driver.cancel_task("")
        else:
            self.driver.savepoint(STOPS[deed.kind])

    def _look_who_runs(self) -> None:
        tasks = self.driver.tasks
        if self._known < len(tasks):
            self._running += tasks[self._known :]
            self._known = len(tasks)
            self.stage.tasks = [one.seat for one in self._running]

    def _note_ends(self) -> None:
        over = [one for one in self._running if one.is_over]
        if not over:
            return
        self._running = [one for one in self._running if not one.is_over]
        self.stage.tasks = [one.seat for one in self._running]
        vertices = self.plan.first.job_graph.vertices
        for one in over:
            if one.seat.worker.dead:
                operators = vertices[one.spec.vertex].chain.operators
                self._dead += [f"{operator.id}.{one.spec.subtask}" for operator in operators]
            else:
                self._ends.check(one)
                _check_open(one)

    def _check_progress(self) -> None:
        progress = (self._book.records_read, self._known - len(self._running), self.job.attempts)
        now_ms = self.clock.now_ms
        if progress != self._progress:
            self._progress, self._progress_ms = progress, now_ms
        if self.steps > MOST_STEPS or now_ms - self._progress_ms > STALL_MS:
            raise CheckFailed(f"the job does not go on: {self.driver.shown}; {self._who_waits()}")

    def _who_waits(self) -> str:
        return "; ".join(
            f"{one.seat.name} ({one.state.value}) waits for {one.seat.waits_for}"
            for one in self._running
        )

    def _pick_weather(self) -> Weather:
        return self._random.choice(self.plan.first.weathers)

    # The end.

    def _check_results(self) -> None:
        is_exact = self.plan.settings.is_exact
        for sink, expected in self.plan.first.expected.items():
            got = self.job.vault.of_sink(sink)
            missing, beyond = expected - got, got - expected
            if missing:
                raise CheckFailed(f"sink {sink} has not committed {some_of(missing)}")
            if beyond and is_exact:
                raise CheckFailed(f"sink {sink} has committed too much: {some_of(beyond)}")
        if self.plan.calm and self.job.attempts != 1:
            raise CheckFailed(f"{self.job.attempts} attempts of a calm job")


def _check_open(one: Deployed) -> None:
    """A task that has read everything has left no channel blocked."""
    if one.state is TaskState.FINISHED:
        for gate in one.gates:
            if any(gate._blocked):
                raise CheckFailed(f"{one.seat.name} has finished with a blocked channel")


def simulate_recovery(seed: int, on_trace: Callable[[str], None] | None = None) -> Outcome:
    """Run one seed; raises RunFailed with the command that replays it."""
    return RecoveryWorld(draw_recovery(seed), on_trace).run()
