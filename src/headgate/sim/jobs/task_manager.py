"""The task manager of a simulated worker: obeys the orders of the driver, one after the other.

Law: an order of another attempt than the present one is ignored; tasks of a new attempt are set up
when all of the last one are over.
"""

from collections import deque
from collections.abc import Callable
from functools import partial

from headgate.base.errors import (
    PartitionNotFound,
    ProducerFailed,
    TaskCancelled,
    TransportError,
)
from headgate.base.messages import (
    Cancel,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointDeclined,
    CheckpointTriggered,
    CheckpointWanted,
    Deploy,
    Failure,
    Placed,
    Shutdown,
    TaskChanged,
    TaskState,
    TimeAnnounced,
)
from headgate.control.effects import Send
from headgate.sim.jobs.deployment import Deployed, Deployment
from headgate.sim.jobs.orders import spec_of
from headgate.sim.jobs.restoring import Restoring
from headgate.sim.jobs.scenario import JobScenario
from headgate.sim.jobs.sim_job import SimJob
from headgate.sim.jobs.writing import Desk, Report
from headgate.sim.worker import SimWorker

RETRY_MS = 0.5
CONSEQUENCES = (PartitionNotFound, ProducerFailed, TaskCancelled, TransportError)


class SimTaskManager:
    """Of one worker. ``tell`` takes what it has to say to the driver."""

    def __init__(
        self,
        worker: SimWorker,
        scenario: JobScenario,
        job: SimJob,
        tell: Callable[[SimWorker, Report | TaskChanged], None],
    ) -> None:
        self.worker = worker
        self.deployment = Deployment(worker, scenario)
        self.deployment.on_set_up = self._set_up
        self.on_set_up: Callable[[Deployed], None] = lambda one: None
        self._job = job
        self._restoring = Restoring(scenario.job_graph, job.storage)
        self._tell = tell
        self._run = ""
        self._inbox: deque[Send] = deque()

    def receive(self, send: Send) -> None:
        """An order has arrived."""
        self._inbox.append(send)
        if len(self._inbox) == 1:
            self._work_off()

    def _work_off(self) -> None:
        while self._inbox:
            slot, message = self._inbox[0].slot, self._inbox[0].message
            if isinstance(message, Deploy) and not self._is_ready(message):
                self.worker.later(RETRY_MS, "waits for its tasks to end", self._work_off)
                return
            self._inbox.popleft()
            self._obey(slot, message)

    def _is_ready(self, order: Deploy) -> bool:
        is_new = order.run != self._run
        return not is_new or all(one.is_over for one in self.deployment.deployed)

    def _obey(self, slot: int, message: object) -> None:
        deployment = self.deployment
        match message:
            case Deploy():
                self._deploy(message)
            case Placed(run, places) if run == self._run:
                for producer, address in places.items():
                    deployment.placed(producer, address)
            case CheckpointTriggered(run) if run == self._run:
                self._trigger(message)
            case CheckpointCompleted(run, checkpoint) if run == self._run:
                for one in deployment.living(slot):
                    one.checkpoint_completed(checkpoint)
            case CheckpointAborted(run, checkpoint, reason) if run == self._run:
                for one in deployment.living(slot):
                    one.checkpoint_aborted(checkpoint, reason)
            case Cancel(run) | Shutdown(run) if run == self._run:
                deployment.cancel()
            case TimeAnnounced():
                raise AssertionError("no source is aligned with others")
            case _:
                pass  # of an earlier attempt

    def _deploy(self, order: Deploy) -> None:
        job, plan = self._job, self._job.plan
        if order.run != self._run:
            self._run = order.run
            random = job.random
            desk = Desk(order.run, job.storage, plan.write_fails, random, self._tell)
            self.deployment.begin(order.attempt, plan.policy, desk)
        specs = [spec_of(task) for task in order.tasks]
        restored = {
            spec.id: self._restoring.read(self.worker, spec, task.restore)
            for spec, task in zip(specs, order.tasks, strict=True)
            if task.restore is not None
        }
        self.deployment.deploy(specs, order.places, restored)

    def _trigger(self, order: CheckpointTriggered) -> None:
        found = [one for one in self.deployment.deployed if one.name == order.task]
        task = found[0].task if found else None
        if task is None:
            why = f"task {order.task} is not here"
            self._tell(
                self.worker, CheckpointDeclined(order.run, order.checkpoint, order.task, why)
            )
        elif not task.lifecycle.state.has_ended:
            task.trigger_checkpoint(order.checkpoint, order.options)

    def _set_up(self, one: Deployed) -> None:
        """A task is about to run: what it tells goes to the driver."""
        task, run, name = one.task, self._run, one.name
        assert task is not None

        def declined(checkpoint: int, reason: str, subsumed: bool) -> None:
            told = CheckpointDeclined(run, checkpoint, name, reason, subsumed)
            self._tell(self.worker, told)

        task.on_state = partial(self._changed, run, name)
        task.on_declined = declined
        task.on_checkpoint_wanted = lambda: self._tell(self.worker, CheckpointWanted(run, name))
        self.on_set_up(one)

    def _changed(self, run: str, task: str, state: TaskState, error: BaseException | None) -> None:
        failure = None if error is None else failure_of(error)
        self._tell(self.worker, TaskChanged(run, task, state, failure))


def failure_of(error: BaseException) -> Failure:
    """As the real host describes it, without its traceback."""
    is_consequence = isinstance(error, CONSEQUENCES)
    return Failure(type(error).__qualname__, str(error), is_consequence=is_consequence)
