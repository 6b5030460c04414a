"""The task managers of a simulated worker and their tasks: the real machines, with greenlets.

A worker has a task manager for each of its slots. It carries out its messages one after the other.
Its slots share an arena, which holds the tasks of one run: those of the next run are set up when
all tasks of the last one have ended.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import TypeAlias

from headgate.base.messages import CheckpointAcked, Deploy, Failure, Shutdown, TaskOrder
from headgate.control.effects import Send
from headgate.control.error_classes import is_consequence
from headgate.core.exchange.link import Address
from headgate.core.task.assembly import AssembledTask, JobInfo, TaskAssembly
from headgate.core.task.deployment import DeployedTasks
from headgate.core.task.runs import Report, TaskReported, TaskRuns
from headgate.core.task.task import TaskListener
from headgate.functions.context import TaskInfo
from headgate.sim.jobs.scenario import JobScenario
from headgate.sim.jobs.sim_job import SimJob
from headgate.sim.jobs.storage import SimCheckpointWriting
from headgate.sim.jobs.threads import SimThread
from headgate.sim.worker import SimWorker

SimTask: TypeAlias = AssembledTask[SimThread]


class SimTaskWorker:
    """Implements ``TaskWorker``; ``attempt``: of the tasks that are to come."""

    def __init__(self, worker: SimWorker, scenario: JobScenario, attempt: int) -> None:
        self.environment = worker.environment
        self.address = worker.address
        self.flush_by_time = worker.flush_by_time
        self._worker = worker
        self._scenario = scenario
        self._attempt = attempt

    def create_thread(self, order: TaskOrder, info: TaskInfo) -> SimThread:
        random = Random(f"thread {order.id} {self._scenario.seed} {self._attempt}")
        scenario = self._scenario
        return SimThread(info.name, self._worker, random, scenario.called_in, scenario.delays)


class SimTasks(DeployedTasks[SimThread]):
    """Implements ``RunTasks``. ``on_set_up`` is called with every task before it runs."""

    def __init__(
        self,
        worker: SimWorker,
        scenario: JobScenario,
        on_set_up: Callable[[SimTask], None],
        listener: TaskListener,
        attempt: int,
        checkpoints: SimCheckpointWriting | None,
    ) -> None:
        assembly = TaskAssembly(
            SimTaskWorker(worker, scenario, attempt),
            scenario.load(),
            JobInfo(scenario.name, attempt, scenario.parameters, scenario.marker_ms),
            listener,
            load_again=None if scenario.code is None else scenario.load,
            checkpoints=checkpoints,
        )
        super().__init__(assembly)
        self._on_set_up = on_set_up
        self._storage = None if checkpoints is None else checkpoints.storage

    def deploy(self, orders: Sequence[TaskOrder], places: Mapping[str, Address | None]) -> None:
        """Set up and start tasks."""
        restored = {} if self._storage is None else self.read(orders, self._storage)
        ready = self.assemble(orders, places, restored)
        for task in ready:
            self._on_set_up(task)
        self.start(ready)


RETRY_MS = 0.5
CANCEL_MS = 1_500

SimReport: TypeAlias = Report | CheckpointAcked


class SimTaskManager:
    """The task managers of one worker. ``tell`` takes reports to the driver."""

    def __init__(
        self,
        worker: SimWorker,
        scenario: JobScenario,
        job: SimJob,
        tell: Callable[[SimWorker, SimReport], None],
        on_set_up: Callable[[SimTask], None],
    ) -> None:
        self.worker = worker
        self.scenario = scenario
        self.job = job
        self.send = partial(tell, worker)
        self.tasks: list[SimTask] = []
        """The tasks of the present run of each slot."""
        self._on_set_up = on_set_up
        self._slots: dict[int, SlotServices] = {}
        self._inbox: deque[Send] = deque()

    def receive(self, send: Send) -> None:
        """An order has arrived."""
        self._inbox.append(send)
        if len(self._inbox) == 1:
            self._work_off()

    def release_partitions(self) -> None:
        """All tasks have ended: drop what nobody has read."""
        for slot in self._slots.values():
            if slot.runs.tasks is not None:
                slot.runs.tasks.release_partitions()

    def set_up(self, task: SimTask) -> None:
        self.tasks.append(task)
        self._on_set_up(task)

    def _work_off(self) -> None:
        while self._inbox:
            slot, message = self._inbox[0].slot, self._inbox[0].message
            if isinstance(message, Deploy) and not self._makes_room(slot, message.run):
                self.worker.later(RETRY_MS, "waits for its tasks to end", self._work_off)
                return
            self._inbox.popleft()
            services = self._slots.setdefault(slot, SlotServices(self))
            now_ms = self.worker.clock.now_ms
            if isinstance(message, Shutdown):
                services.runs.leave(CANCEL_MS, now_ms)
            else:
                services.runs.received(message, now_ms)

    def _makes_room(self, slot: int, run: str) -> bool:
        """For a run in a slot; tasks that it has of an earlier one are for its machine to end."""
        others = [s.runs for at, s in self._slots.items() if at != slot and s.runs.run != run]
        if any(runs.open for runs in others):
            return False
        for runs in others:
            if runs.tasks is not None:
                runs.tasks.release_partitions()
        return True


class SlotServices:
    """Implements ``RunServices`` for one slot."""

    def __init__(self, manager: SimTaskManager) -> None:
        self.runs: TaskRuns[SimTasks] = TaskRuns(self, CANCEL_MS)
        self.send = manager.send
        self.describe = failure_of
        self._manager = manager

    def begin_run(self, order: Deploy, listener: TaskListener) -> SimTasks:
        manager, job = self._manager, self._manager.job
        worker, store = manager.worker, None
        if (how := order.checkpoints) is not None:
            fails, random = job.write_fails, job.random
            delays = manager.scenario.delays
            store = SimCheckpointWriting(
                order.run, how, job.storage, fails, random, worker, manager.send, delays
            )
        return SimTasks(worker, manager.scenario, manager.set_up, listener, order.attempt, store)

    def end_run(self, tasks: SimTasks) -> bool:
        tasks.release_partitions()
        known = {id(task) for task in tasks.tasks}
        self._manager.tasks[:] = [task for task in self._manager.tasks if id(task) not in known]
        return True

    def post(self, report: TaskReported) -> None:
        worker = self._manager.worker
        worker.later(0, "report", lambda: self.runs.reported(report, worker.clock.now_ms))

    def order_failed(self, error: Exception) -> None:
        raise error  # orders of the simulated driver can be carried out

    def task_ended(self) -> None:
        """There are no figures."""


def failure_of(error: BaseException) -> Failure:
    """The error as the real host describes it, without its traceback."""
    is_elsewhere = is_consequence(error)
    return Failure(type(error).__qualname__, str(error), is_consequence=is_elsewhere)
