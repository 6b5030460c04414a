"""The coordinator of a run: starts tasks when they may start, cleans up behind those that fail.

Two policies. Sweeping: the first trouble cancels every task. Lazy: what trouble does not touch goes
on to its end, and only what is stuck because of it is cancelled then.
"""

from collections.abc import Callable

from headgate.base.ids import PartitionId
from headgate.core.egress.partition import PartitionKind
from headgate.core.task.environment import Here, Input, RemoteProducer, UnplacedProducer
from headgate.sim.clock import Clock
from headgate.sim.worker import SimWorker
from tests.sim.programs import Job
from tests.sim.scenario import JobPlan, Scenario, waits_for_blocking
from tests.sim.tasks import Fate

REACTION_MS = 3.0


class Coordinator:
    """Knows all tasks of the run and who reads from whom."""

    def __init__(
        self,
        scenario: Scenario,
        workers: list[SimWorker],
        clock: Clock,
        make_job: Callable[[JobPlan, list[list[Input]]], Job],
    ) -> None:
        self.scenario = scenario
        self.swept = False
        self._workers = workers
        self._clock = clock
        self._places = scenario.places()
        self._plans = {plan.name: plan for plan in scenario.jobs}
        self.jobs = {plan.name: make_job(plan, self._inputs(plan)) for plan in scenario.jobs}
        self._blocking = {
            plan.output.partition
            for plan in scenario.jobs
            if plan.output is not None and plan.output.kind is PartitionKind.BLOCKING
        }
        self._held = [plan for plan in scenario.jobs if self._is_held(plan)]
        if scenario.together:
            for job in self.jobs.values():
                job.set_up()
        for plan in scenario.jobs:
            if plan.start_ms is not None and plan not in self._held:
                self._start(plan, plan.start_ms)

    def producers_of(self, name: str) -> list[str]:
        """The tasks that a task reads from."""
        return [feed.producer for feeds in self._plans[name].feeds for feed in feeds]

    def consumers_of(self, name: str) -> list[str]:
        return [plan.name for plan in self.scenario.jobs if name in self.producers_of(plan.name)]

    def readers_of(self, partition: PartitionId) -> list[tuple[str, int]]:
        """Who reads which subpartition of an output."""
        return [
            (plan.name, feed.subpartition)
            for plan in self.scenario.jobs
            for feeds in plan.feeds
            for feed in feeds
            if feed.partition == partition
        ]

    def never_starts(self, name: str) -> bool:
        return self._plans[name].start_ms is None

    @property
    def all_over(self) -> bool:
        return all(job.task.is_over for job in self.jobs.values())

    @property
    def troubled(self) -> bool:
        """Whether a task has not run, or will not run, to its end."""
        return any(
            job.task.is_over and job.task.fate is not Fate.FINISHED for job in self.jobs.values()
        )

    def task_over(self, job: Job) -> None:
        """A task has ended: start who waited for it, or clean up."""
        for plan in list(self._held):
            if self._may_start(plan):
                self._held.remove(plan)
                self._start(plan, 0)
        trouble = job.task.fate in (Fate.FAILED, Fate.LOST)
        if trouble and self.scenario.sweeps and not self.swept:
            self.sweep()

    def sweep(self) -> None:
        """Cancel everything that is not over."""
        self.swept = True
        self._held.clear()
        for job in self.jobs.values():
            if not job.task.is_over:
                self.cancel(job)

    def worker_lost(self, worker: SimWorker) -> None:
        """A worker has died, and its tasks with it."""
        for job in self.jobs.values():
            if job.task.worker is worker:
                job.task.lose()

    def names(self) -> list[str]:
        return list(self.jobs)

    def cancel_task(self, name: str) -> None:
        self.cancel(self.jobs[name])

    def cancel(self, job: Job) -> None:
        job.task.worker.later(REACTION_MS, f"cancelling {job.name}", job.task.cancel)

    def release_outputs(self) -> None:
        """All tasks are over: give up partitions that nobody will read any more."""
        for job in self.jobs.values():
            plan = job.output_plan
            assert job.task.is_over
            if job.task.worker.dead:
                continue
            if plan is not None and (self.troubled or not plan.kind.is_pipelined):
                job.release_output()

    def _is_held(self, plan: JobPlan) -> bool:
        """It waits for a blocking producer, or reads from a task that does."""
        jobs = self.scenario.jobs
        return waits_for_blocking(plan, jobs) or any(
            self._is_held(self._plans[name]) for name in self.producers_of(plan.name)
        )

    def _may_start(self, plan: JobPlan) -> bool:
        for feeds in plan.feeds:
            for feed in feeds:
                task = self.jobs[feed.producer].task
                if feed.partition in self._blocking and task.fate is not Fate.FINISHED:
                    return False
                if self._plans[feed.producer] in self._held:
                    return False
        return plan.start_ms is not None

    def _start(self, plan: JobPlan, delay_ms: float) -> None:
        job = self.jobs[plan.name]
        worker = self._workers[plan.worker]

        def start() -> None:
            job.start()
            for number, gate in enumerate(plan.place_ms):
                for index, place_ms in enumerate(gate):
                    if place_ms is not None:
                        self._place_later(job, plan, number, index, place_ms)

        worker.later(delay_ms, f"starting {plan.name}", start)

    def _place_later(
        self, job: Job, plan: JobPlan, number: int, index: int, place_ms: float
    ) -> None:
        feed = plan.feeds[number][index]
        worker = self._workers[plan.worker]

        def place() -> None:
            if job.inbox is not None:
                where = self._place(plan, feed.producer)
                worker.environment.place(job.inbox.gates[number], index, where)

        worker.later(place_ms, f"placing {feed.partition} for {plan.name}", place)

    def _inputs(self, plan: JobPlan) -> list[list[Input]]:
        return [
            [
                Input(
                    feed.partition,
                    feed.subpartition,
                    self._place(plan, feed.producer) if place_ms is None else UnplacedProducer(),
                )
                for feed, place_ms in zip(feeds, places, strict=True)
            ]
            for feeds, places in zip(plan.feeds, plan.place_ms, strict=True)
        ]

    def _place(self, plan: JobPlan, producer: str) -> Here | RemoteProducer:
        where = self._places[producer]
        return Here() if where == plan.worker else RemoteProducer(self._workers[where].address)
