"""The scheduler: workers and tasks under one clock, and the choice of who moves next.

The steps that can be taken are those of tasks that are awake, of connections that can read, flush
or be accepted, and of timers that are due; chance picks one. When there is none, the clock jumps to
the next timer.
"""

from collections.abc import Callable, Sequence
from math import inf
from random import Random
from typing import Protocol, TypeAlias

from headgate.sim.clock import Clock
from headgate.sim.connection import SimConnection
from headgate.sim.worker import SimWorker


class Actor(Protocol):
    """A task that can be stepped."""

    @property
    def name(self) -> str: ...

    @property
    def worker(self) -> SimWorker: ...

    @property
    def waits_for(self) -> str: ...

    @property
    def is_runnable(self) -> bool: ...

    def step(self) -> None: ...


Step: TypeAlias = tuple[str, SimWorker | None, Callable[[], str | None]]
"""What the trace says, whose step it is, and what to do."""
NetworkStep: TypeAlias = tuple[SimWorker, SimConnection | None, bool]
"""Of a worker: to accept a connection, or with one of its connections to read (or to flush)."""


class Scheduler:
    """``weights`` are the weights of tasks, network and timers in the choice."""

    def __init__(
        self,
        clock: Clock,
        workers: list[SimWorker],
        random: Random,
        weights: tuple[int, int, int] = (1, 1, 1),
    ) -> None:
        self.clock = clock
        self.workers = workers
        self.tasks: Sequence[Actor] = []
        self._random = random
        self._weights = weights

    def act(self, until_ms: float = inf) -> str | None:
        """Take one step and say what it was; None if nothing happens up to this time."""
        step = self._choose(until_ms)
        if step is None:
            return None
        label, worker, act = step
        detail = act()
        if worker is not None:
            worker.touched = True
        return f"{self.clock.now_ms:.3f} {label} {detail or ''}".rstrip()

    def _choose(self, until_ms: float) -> Step | None:
        while True:
            tasks = [task for task in self.tasks if task.is_runnable]
            network = self._network_steps()
            timers = self.clock.is_due
            if tasks or network or timers:
                break
            next_ms = self.clock.next_ms
            if next_ms is None or next_ms > until_ms:
                return None
            self.clock.jump()
        weights = self._weights
        sides = (bool(tasks) * weights[0], bool(network) * weights[1], timers * weights[2])
        dice = self._random.randrange(sum(sides))
        if dice < sides[0]:
            task = tasks[self._random.randrange(len(tasks))]
            return f"task {task.name}", task.worker, lambda: self._step_task(task)
        if dice < sides[0] + sides[1]:
            return _named(network[self._random.randrange(len(network))])
        label, call = self.clock.pop_due()
        return label, None, lambda: call()

    def _network_steps(self) -> list[NetworkStep]:
        steps: list[NetworkStep] = []
        for worker in self.workers:
            if worker.frozen:
                continue
            if worker.waiting:
                steps.append((worker, None, False))
            for connection in worker.connections:
                if connection.can_read:
                    steps.append((worker, connection, True))
                if connection.can_flush:
                    steps.append((worker, connection, False))
        return steps

    def _step_task(self, task: Actor) -> str:
        task.step()
        return task.waits_for


def _named(step: NetworkStep) -> Step:
    worker, connection, reads = step
    if connection is None:
        return f"{worker.name} accepts", worker, worker.accept
    if reads:
        return f"read {connection.name}", worker, connection.read
    return f"flush {connection.name}", worker, connection.flush
