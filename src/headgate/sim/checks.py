"""What must hold after every step, and at the end of a run.

The machines assert their own laws; here is what can only be seen from outside: the census of
segments, the credit law, errors that reach whom they concern and nobody else, and the end.
"""

from headgate.base.errors import (
    EventUnclaimed,
    PartitionNotFound,
    ProducerFailed,
    TaskCancelled,
    TransportError,
)
from headgate.core.egress.pipelined import PipelinedSubpartition
from headgate.core.exchange.ends import ProducerEnd
from headgate.sim.coordinator import Coordinator
from headgate.sim.credit import check_credit
from headgate.sim.faults import Faults
from headgate.sim.ledger import CheckFailed
from headgate.sim.programs import Job
from headgate.sim.segments import count_segments, remote_channels
from headgate.sim.tasks import Fate, PlannedFailure
from headgate.sim.worker import SimWorker

CENSUS_EVERY = 25
"""Steps between two looks at everything; the cheap checks come after every step."""

FRAME_BYTES = 64
"""More than the head of a frame, and than an event."""
CONTROL_BYTES = 8192
"""More than all control messages that ever wait together in so small a run."""


class Checks:
    """Looks at a whole run."""

    def __init__(self, workers: list[SimWorker], coordinator: Coordinator, faults: Faults) -> None:
        self._workers = workers
        self._coordinator = coordinator
        self._faults = faults
        settings = coordinator.scenario.settings
        burst_bytes = (settings.burst_frames + 1) * (settings.segment_bytes + FRAME_BYTES)
        self._outbox_bytes = settings.high_water_bytes + burst_bytes + CONTROL_BYTES
        self._jobs_on = {
            worker.name: [job for job in coordinator.jobs.values() if job.task.worker is worker]
            for worker in workers
        }

    def after_step(self, step: int) -> None:
        for worker in self._workers:
            if worker.touched and not worker.dead:
                worker.touched = False
                self._check_machines(worker)
        if step % CENSUS_EVERY == 0:
            self.look_at_all()

    def look_at_all(self) -> None:
        """The dear checks."""
        for worker in self._alive():
            count_segments(worker, self._jobs_on[worker.name])
        check_credit(self._alive())

    def _alive(self) -> list[SimWorker]:
        return [worker for worker in self._workers if not worker.dead]

    def _check_machines(self, worker: SimWorker) -> None:
        worker.environment.pool.check()
        for connection in worker.connections:
            link = connection.link
            if isinstance(link, ProducerEnd):
                if link.outbox.pending_bytes > self._outbox_bytes:
                    raise CheckFailed(f"{connection.name}: {link.outbox.pending_bytes} bytes wait")
                link.session.check()
        for job in self._jobs_on[worker.name]:
            if job.output is not None and not job.output.partition.released:
                for subpartition in job.output.partition.subpartitions:
                    if isinstance(subpartition, PipelinedSubpartition):
                        subpartition.check()
            if job.inbox is not None and not job.task.is_over:
                for gate in job.inbox.gates:
                    gate.check()
        self._check_channels(worker)

    def _check_channels(self, worker: SimWorker) -> None:
        """A lost connection is told to all channels that use it, and to no others."""
        for channel in remote_channels(self._jobs_on[worker.name]):
            channel.check()
            link, error = channel._link, channel._error
            if channel._released:
                continue
            if link is not None and not link.is_alive and error is None:
                raise CheckFailed(
                    f"channel {channel.id} of {worker.name} was not told that {link.peer} is lost"
                )
            if isinstance(error, TransportError):
                self._check_transport_error(worker, channel.address[0], error)
                if link is None or link.is_alive:
                    raise CheckFailed(f"channel {channel.id} has {error!r} on a living connection")

    def _check_transport_error(
        self, worker: SimWorker, producer: str, error: TransportError
    ) -> None:
        if not self._faults.explains(worker.name, producer):
            raise CheckFailed(f"nothing explains on {worker.name}: {error!r}")
        if not error.peer.startswith(f"{producer}:"):
            raise CheckFailed(f"{error!r} does not name {producer}")

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
                self._check_transport_error(job.task.worker, producer, error)
                return self._faults.explains(here, producer)
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
            reader.task.is_over or self._faults.explains(reader.task.worker.name, here)
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
        self.look_at_all()
        for worker in self._alive():
            environment = worker.environment
            now = environment.pool.statistics()
            if now.free != now.total or now.required or now.pools:
                raise CheckFailed(f"{worker.name} does not have all its segments back: {now}")
            if len(environment.partitions):
                raise CheckFailed(
                    f"{worker.name} still knows {len(environment.partitions)} outputs"
                )
            if environment.directory.links():
                raise CheckFailed(f"{worker.name} still has connections in its directory")
            if worker.stores or worker.spills.open_now:
                raise CheckFailed(f"{worker.name} has {worker.stores} stores or spills left")
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
        return self._faults.closed_hastily(reader.task.worker.name, writer.task.worker.name)
