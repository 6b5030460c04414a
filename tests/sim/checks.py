"""How tasks of a run may end, and what must have arrived when it is over.

The machines are looked at by the laws; here is what follows from the programs: every end has a
reason, and in a calm run everything that was sent is received.
"""

from headgate.base.errors import (
    EventUnclaimed,
    PartitionNotFound,
    ProducerFailed,
    TaskCancelled,
    TransportError,
)
from headgate.sim.faults import Faults
from headgate.sim.worker import CheckFailed, SimWorker
from tests.sim.coordinator import Coordinator
from tests.sim.laws import Laws, is_explained
from tests.sim.programs import Job
from tests.sim.tasks import Fate, PlannedFailure


class Checks:
    """Looks at a whole run."""

    def __init__(self, workers: list[SimWorker], coordinator: Coordinator, faults: Faults) -> None:
        self._coordinator = coordinator
        self._faults = faults
        self.laws = Laws(workers, faults, coordinator.scenario.settings)
        for worker in workers:
            self.laws.holders[worker.name] = [
                job for job in coordinator.jobs.values() if job.task.worker is worker
            ]

    # The end of a task.

    def task_over(self, job: Job) -> None:
        """How a task ended must have a reason."""
        task = job.task
        error = task.error
        if task.fate is Fate.FINISHED:
            self._check_finished(job)
        elif task.fate is Fate.FAILED:
            assert error is not None
            if not self._is_explained(job, error):
                raise CheckFailed(f"nothing explains the end of {job.name}: {error!r}") from error
        elif task.fate is Fate.CANCELLED:
            assert not self._coordinator.scenario.calm, f"{job.name} was cancelled in a calm run"

    def _check_finished(self, job: Job) -> None:
        if job.inbox is None:
            return
        for position in job.inbox.positions:
            if not position.ended:
                raise CheckFailed(f"{position}: no end came and {job.name} finished")
        for name in self._coordinator.producers_of(job.name):
            producer = self._coordinator.jobs[name]
            if producer.task.fate not in (Fate.FINISHED, Fate.RUNNING, Fate.LOST):
                raise CheckFailed(f"{job.name} finished and {name} has {producer.task.fate.value}")

    def _is_explained(self, job: Job, error: BaseException) -> bool:
        here = job.task.worker.name
        match error:
            case PlannedFailure():
                return job.manners.fails_at >= 0
            case ProducerFailed():
                return self._producer_ended(job, error)
            case PartitionNotFound() | EventUnclaimed():
                return self._producer_gone(job, error)
            case TransportError():
                producer = error.peer.split(":")[0]
                self.laws.check_transport_error(job.task.worker, producer, error)
                return is_explained(self._faults, here, producer)
            case TaskCancelled():
                return self._readers_gone(job)
            case _:
                return False

    def _readers_gone(self, job: Job) -> bool:
        """All readers of a task's output have ended, or lost their connection to it."""
        readers = [
            self._coordinator.jobs[name] for name in self._coordinator.consumers_of(job.name)
        ]
        here = job.task.worker.name
        return bool(readers) and all(
            reader.task.is_over or is_explained(self._faults, reader.task.worker.name, here)
            for reader in readers
        )

    def _producer_ended(self, job: Job, error: ProducerFailed) -> bool:
        """The producer's own error is the cause that is told."""
        producer = self._producer_of(job, error)
        if producer is None or producer.task.fate not in (Fate.FAILED, Fate.CANCELLED):
            return False
        return producer.task.error is None or str(producer.task.error) in error.cause

    def _producer_gone(self, job: Job, error: PartitionNotFound | EventUnclaimed) -> bool:
        producer = self._producer_of(job, error)
        if producer is None:
            return False
        if producer.task.fate in (Fate.WAITING, Fate.FAILED, Fate.CANCELLED, Fate.LOST):
            return not self._coordinator.scenario.calm
        return bool(self._faults.frozen)

    def _producer_of(
        self, job: Job, error: ProducerFailed | PartitionNotFound | EventUnclaimed
    ) -> Job | None:
        for name in self._coordinator.producers_of(job.name):
            producer = self._coordinator.jobs[name]
            plan = producer.output_plan
            if plan is not None and plan.partition == error.partition:
                return producer
        return None

    # The end of the run.

    def at_end(self) -> None:
        """Nothing is held, nothing is left, and in a calm run everything has arrived."""
        self.laws.at_end()
        if self._coordinator.scenario.calm:
            self._check_calm()

    def _check_calm(self) -> None:
        jobs = self._coordinator.jobs
        for job in jobs.values():
            if job.task.fate is not Fate.FINISHED:
                raise CheckFailed(f"{job.name} {job.task.fate.value} in a calm run")
            if job.inbox is None:
                continue
            for name in self._coordinator.producers_of(job.name):
                output = jobs[name].output
                assert output is not None
                sent = job.inbox.nudged.get(output.plan.partition, 0)
                received = output.nudges.get(job.name, 0)
                if sent != received and not self._closed_hastily(job, jobs[name]):
                    raise CheckFailed(f"{job.name} sent {sent} events to {name}, not {received}")

    def _closed_hastily(self, reader: Job, writer: Job) -> bool:
        """Whether the last words of a reader may be lost, as its side closed with bytes unread."""
        consumer, producer = reader.task.worker.name, writer.task.worker.name
        return any(
            wire.up.torn and (wire.consumer, wire.producer) == (consumer, producer)
            for wire in self._faults.network.wires
        )
