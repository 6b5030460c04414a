"""The world of a job that takes checkpoints: run after run, until it has come to its end.

Law: whatever happened, its sinks have committed what the reference says; with barriers that
do not wait (at least once) all of that, and perhaps some of it twice.
"""

from collections.abc import Callable
from typing import ClassVar

from headgate.sim.clock import Clock
from headgate.sim.jobs.scenario import JobScenario
from headgate.sim.jobs.sim_job import RecoveringJob
from headgate.sim.worker import CheckFailed, SimWorker
from tests.sim.jobs.ends import some_of
from tests.sim.jobs.random_recoveries import DrawnRecovery, draw_recovery
from tests.sim.jobs.records import Observations
from tests.sim.jobs.world import JobWorld
from tests.sim.outcome import Outcome


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
        self._rescaled_at = 0  # the first attempt with the present parallelism

    def run_all(self) -> None:
        scenario: JobScenario | None = self.plan.first
        while scenario is not None:
            self._run_once(scenario)
            rescaled = self.job.rescaled
            scenario = self.next_run(self.job)
            if self.job.rescaled > rescaled:
                self._rescaled_at = self.job.attempts + 1
                self.observations.unordered_before = self._rescaled_at
        self._check_commits()

    # Runs.

    def _run_once(self, scenario: JobScenario) -> None:
        self.begin(scenario)
        driver = self.driver
        while driver.outcome is None and not driver.is_gone:
            self.step()
        if not driver.is_gone:
            lost = driver.given_up
            self._kill([worker for worker in self.workers if worker.frozen or worker in lost])
            self.wind_down()
        self._kill(self.workers)
        self._new_observations()

    def new_attempt(self) -> None:
        super().new_attempt()
        self.laws.look_closely()
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

    def check_observations(self) -> None:
        super().check_observations()
        if self.commit_log.problems:
            raise CheckFailed(self.commit_log.problems[0])

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
