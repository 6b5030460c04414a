"""A job's tasks in one simulated worker: the real assembly, with greenlets for threads."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TypeAlias

from headgate.base.messages import TaskOrder
from headgate.core.exchange.ends import Address
from headgate.core.task.assembly import AssembledTask, JobInfo, TaskAssembly
from headgate.core.task.deployment import DeployedTasks
from headgate.core.task.task import TaskListener
from headgate.functions.context import TaskInfo
from headgate.sim.jobs.scenario import JobScenario
from headgate.sim.jobs.threads import SimThread
from headgate.sim.jobs.writing import SimCheckpointWriting
from headgate.sim.worker import SimWorker

SimTask: TypeAlias = AssembledTask[SimThread]


class SimTaskWorker:
    """See ``TaskWorker``; ``attempt``: of the tasks that are to come."""

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
    """See ``RunTasks``. ``on_set_up`` is told of every task before it runs."""

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
