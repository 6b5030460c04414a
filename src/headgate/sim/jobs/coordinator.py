"""The driver of a simulated job: real placement, tasks deployed as their workers arrive.

The first trouble cancels everything, as the real driver does.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from headgate.base.messages import Deploy, Placed, TaskState
from headgate.control.deployment import RunPlan, TaskPlacement
from headgate.sim.jobs.deployment import Deployed, Deployment
from headgate.sim.jobs.orders import order_of, spec_of
from headgate.sim.jobs.scenario import JobScenario
from headgate.sim.jobs.seats import Seat
from headgate.sim.worker import SimWorker

REACTION_MS: Final = 3.0


class JobCoordinator:
    """Knows all tasks of the run."""

    def __init__(self, scenario: JobScenario, workers: list[SimWorker]) -> None:
        self.cancelled = False
        self.lost: list[str] = []
        """Tasks whose worker has died."""
        self.deployments = [Deployment(worker, scenario) for worker in workers]
        self.tasks: dict[str, Deployed] = {}
        self.on_deployed: Callable[[], None] = lambda: None
        self._scenario = scenario
        self._random = Random(f"coordinator {scenario.seed}")
        orders = tuple(map(order_of, scenario.execution.tasks))
        self._orders = {order.id: order for order in orders}
        self._placement = TaskPlacement(
            RunPlan(
                "run", "sim", orders, scenario.execution.slots, b"", batch=scenario.job_graph.batch
            )
        )
        self._sent_ms = [0.0] * scenario.execution.slots
        self._by_name: dict[str, Seat] = {}
        for slot, arrive_ms in enumerate(scenario.arrive_ms):
            worker = workers[scenario.worker_of[slot]]
            worker.clock.later(arrive_ms, f"slot {slot} registers", partial(self._arrived, slot))

    @property
    def all_over(self) -> bool:
        """Every task has ended, or never will begin."""
        ended = all(one.is_over for one in self.tasks.values())
        return ended and (self.cancelled or len(self.tasks) == len(self._orders))

    @property
    def running(self) -> list[Deployed]:
        return [one for one in self.tasks.values() if not one.is_over]

    def seat_of(self, task: str) -> Seat:
        """By the name that functions know."""
        return self._by_name[task]

    def task_over(self, one: Deployed) -> None:
        """A task has ended: deploy who waited for it, or cancel all."""
        if one.state is TaskState.FINISHED:
            self._send(self._placement.finished(one.spec.vertex))
        else:
            self.cancel()

    def cancel(self) -> None:
        """Everything shall end."""
        if not self.cancelled:
            self.cancelled = True
            for deployment in self.deployments:
                deployment.worker.later(REACTION_MS, "cancelling", deployment.cancel)

    # What faults do (Victims).

    def names(self) -> list[str]:
        return list(self._orders)

    def cancel_task(self, name: str) -> None:
        """The user cancels the job; whose task it is makes no difference."""
        self.cancel()

    def worker_lost(self, worker: SimWorker) -> None:
        """A worker has died, and its tasks with it."""
        for one in self.tasks.values():
            if one.seat.worker is worker and not one.is_over:
                one.seat.kill()
                self.lost.append(one.name)
        self.cancel()

    # Orders.

    def _arrived(self, slot: int) -> None:
        worker = self._worker(slot)
        if not worker.dead and not self.cancelled:
            self._send(self._placement.arrived(slot, worker.address))

    def _send(self, orders: list[tuple[int, Deploy | Placed]]) -> None:
        """Each slot gets its orders one after the other."""
        for slot, order in orders:
            worker = self._worker(slot)
            now_ms = worker.clock.now_ms
            at_ms = max(self._sent_ms[slot], now_ms + self._random.choice((0.1, 1.0, 8.0)))
            self._sent_ms[slot] = at_ms
            worker.later(
                at_ms - now_ms,
                f"{type(order).__name__} for slot {slot}",
                partial(self._obey, slot, order),
            )

    def _obey(self, slot: int, order: Deploy | Placed) -> None:
        deployment = self.deployments[self._scenario.worker_of[slot]]
        if self.cancelled:
            return
        if isinstance(order, Placed):
            for producer, address in order.places.items():
                deployment.placed(producer, address)
            return
        ready = deployment.deploy([spec_of(task) for task in order.tasks], order.places)
        for one in ready:
            self.tasks[one.name] = one
            self._by_name[one.seat.name] = one.seat
        self.on_deployed()

    def _worker(self, slot: int) -> SimWorker:
        return self.deployments[self._scenario.worker_of[slot]].worker
