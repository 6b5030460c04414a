"""The world of a job that takes checkpoints: run after run, until it has come to its end.

Law: whatever happened, its sinks have committed what the reference says; with barriers that
do not wait (at least once) all of that, and perhaps some of it twice.
"""

from collections.abc import Callable
from typing import ClassVar, Final

from headgate.base.checkpoints import Stop
from headgate.control.life_cycle import JobState
from headgate.sim.clock import Clock
from headgate.sim.jobs.scenario import JobScenario
from headgate.sim.jobs.sim_job import RecoveringJob
from headgate.sim.worker import CheckFailed, SimWorker
from tests.sim.jobs.ends import some_of
from tests.sim.jobs.random_jobs import DrawnJob
from tests.sim.jobs.random_recoveries import Deed, DrawnRecovery, draw_recovery
from tests.sim.jobs.records import Observations
from tests.sim.jobs.world import JobWorld
from tests.sim.outcome import Outcome

STOPS: Final = {"savepoint": Stop.NO, "suspend": Stop.SUSPEND, "drain": Stop.DRAIN}


class CountingJob(RecoveringJob):
    """Counts how often a run began with another parallelism than what it goes on from."""

    rescaled = 0

    def next_run(self) -> JobScenario:
        latest = self.recovery.history.latest
        known = self._scale if latest is None else self._scale_of[latest.metadata.checkpoint]
        scenario = super().next_run()
        self.rescaled += self._scale != known
        return scenario


class RecoveryWorld(JobWorld):
    """All runs of a job, one after the other."""

    name: ClassVar = "recovery"
    stall_ms: ClassVar = 30_000.0
    job: CountingJob

    def __init__(self, plan: DrawnRecovery, on_trace: Callable[[str], None] | None = None) -> None:
        clock = Clock()
        super().__init__(plan.first, CountingJob(plan, clock), on_trace, clock)
        self.plan = plan
        commit_log = plan.first.run.commit_log
        assert commit_log is not None
        self.commit_log = commit_log
        commit_log.is_complete = self.job.storage.is_complete
        self._deeds = list(plan.deeds)
        self._rescaled_at = 0  # the first attempt with the present parallelism

    def run_all(self) -> None:
        scenario: DrawnJob | None = self.plan.first
        while scenario is not None:
            self._run_once(scenario)
            rescaled = self.job.rescaled
            scenario = self._what_next()
            if self.job.rescaled > rescaled:
                self._rescaled_at = self.job.attempts + 1
                self.observations.unordered_before = self._rescaled_at
        self._check_commits()

    # Runs.

    def _run_once(self, scenario: DrawnJob) -> None:
        self.begin(scenario)
        driver = self.driver
        driver.on_attempt = self._new_attempt
        while driver.outcome is None and not driver.is_gone:
            self.step()
        if not driver.is_gone:
            lost = driver.given_up
            self._kill([worker for worker in self.workers if worker.frozen or worker in lost])
            self.wind_down()
        self._kill(self.workers)
        self._new_observations()

    def _new_attempt(self) -> None:
        """In the same workers."""
        self.network.refused.clear()
        self.laws.look_closely()
        self.look_who_runs()
        self._new_observations()
        self.plan.first.run.attempt = self.job.attempts + 1  # which is about to be planned

    def _new_observations(self) -> None:
        """All tasks of an attempt have ended."""
        self.observations.check_closed(self.dead)
        self.check_observations()
        self.items += self.observations.records_read
        self.dead = []
        self.observations = self.plan.first.run.observations = Observations()
        self.observations.unordered_before = self._rescaled_at

    def _what_next(self) -> DrawnJob | None:
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
        scenario = job.next_run()
        assert isinstance(scenario, DrawnJob)
        return scenario

    def _kill(self, workers: list[SimWorker]) -> None:
        """Their processes end."""
        for worker in workers:
            if not worker.dead:
                self.network.refused.append(worker.name)
                self.faults.frozen.append(worker.name)
                worker.die()
        for task in self.running:
            if task.thread.worker.dead and not task.thread.is_over:
                task.thread.kill()
        self.note_ends()

    # One step.

    def disturb(self) -> str | None:
        driver = self.driver
        if driver.is_gone:
            return None
        if driver.outcome is None and self._deeds and self._deeds[0].step <= self.steps:
            deed = self._deeds.pop(0)
            self.struck.append(deed.kind)
            self._do(deed)
            return f"{self.clock.now_ms:.3f} deed: {deed.kind}"
        return super().disturb()

    def check_observations(self) -> None:
        super().check_observations()
        if self.commit_log.problems:
            raise CheckFailed(self.commit_log.problems[0])

    def _do(self, deed: Deed) -> None:
        if deed.kind == "driver":
            self.driver.die()
        elif deed.kind == "cancel":
            self.driver.cancel_task("")
        elif deed.kind == "hang-up":
            worker = self.driver.hang_up()
            if worker is not None:
                self.network.refused.append(worker.name)
                self.faults.frozen.append(worker.name)
        else:
            self.driver.savepoint(STOPS[deed.kind])

    # The end.

    def _check_commits(self) -> None:
        is_exact = self.plan.settings.is_exact
        for sink, expected in self.plan.first.expected.items():
            got = self.commit_log.of_sink(sink)
            missing, beyond = expected - got, got - expected
            if missing:
                raise CheckFailed(f"sink {sink} has not committed {some_of(missing)}")
            if beyond and is_exact:
                raise CheckFailed(f"sink {sink} has committed too much: {some_of(beyond)}")
        if self.plan.calm and self.job.attempts != 1:
            raise CheckFailed(f"{self.job.attempts} attempts of a calm job")


def simulate_recovery(seed: int, on_trace: Callable[[str], None] | None = None) -> Outcome:
    """Run one seed; raises RunFailed with the command that replays it."""
    return RecoveryWorld(draw_recovery(seed), on_trace).run()
