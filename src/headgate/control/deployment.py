"""The task managers of a run, and which of its tasks go to which of them, and when.

A streaming job's tasks are deployed together as soon as the task manager of their slot is there.
Those of a batch job wait until every task of the vertices before theirs has finished. Law: a slot
is served once, and a run that has lost a task manager, or did not get one, is broken for good: all
have to be started again. Each task is deployed once; a producer that had no place when its consumer
was deployed gets one with a single ``Placed`` for each slot that waits for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from msgspec import structs

from headgate.base.messages import Address, CheckpointOrder, Deploy, Placed, TaskOrder
from headgate.control.pending_checkpoint import CheckpointedJob
from headgate.control.split_assignment import PlannedSource


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run is made of; ``code`` are the job's vertices, shipped."""

    run: str
    job: str
    tasks: tuple[TaskOrder, ...]
    slots: int
    code: bytes
    attempt: int = 0
    parameters: Mapping[str, str] = field(default_factory=dict)
    batch: bool = False
    checkpoints: CheckpointOrder | None = None
    """How its tasks take them; None: they take none."""
    checkpointed: CheckpointedJob | None = None
    """The job as its checkpoints see it; there, if they are taken."""
    restored: int | None = None
    """The checkpoint that it goes on from."""
    sources: tuple[PlannedSource, ...] = ()
    """Sources whose splits the driver hands out while the run goes on."""
    rows_wanted: int | None = None
    """A part of a DataFrame may end after so many rows; None: not before its end."""

    def of_task(self, place: int) -> "RunPlan":
        """A plan with one of the tasks, in one slot, for a job whose tasks exchange nothing."""
        task = self.tasks[place]
        assert not task.gates and not task.outputs, f"task {task.id} needs others"
        return replace(self, tasks=(structs.replace(task, slot=0),), slots=1)


class TaskManagers:
    """The registered task managers by slot, with their data addresses, and those that are gone."""

    def __init__(self, slots: int) -> None:
        self.here: dict[int, Address] = {}
        self.is_broken = False
        self.register_by_ms: float | None = None
        """When the last task manager must have registered."""
        self._slots = slots
        self._gone: list[int] = []

    def knows(self, slot: int) -> bool:
        """Whether a task manager has registered for the slot, also one that is lost."""
        return slot in self.here or slot in self._gone

    def refusal(self, slot: int) -> str | None:
        """Why a task manager may not register for this slot; None: it may."""
        if not 0 <= slot < self._slots:
            return f"there is no slot {slot}; the job has {self._slots}"
        return f"slot {slot} is taken" if self.knows(slot) else None

    def registered(self, slot: int, address: Address, all_by_ms: float) -> None:
        """A task manager has registered; the first one sets the deadline for the others."""
        if not self.here:
            self.register_by_ms = all_by_ms
        self.here[slot] = address

    def lost(self, slot: int) -> bool:
        """A task manager is gone; says whether that is news."""
        if slot not in self.here:
            return False
        del self.here[slot]
        self.is_broken = True
        self._gone.append(slot)
        return True


class TaskPlacement:
    """Which tasks go to which task manager, and when."""

    def __init__(self, plan: RunPlan) -> None:
        self._plan = plan
        self._slots = {task.id: task.slot for task in plan.tasks}
        self._addresses: dict[int, Address] = {}
        self._undeployed: dict[int, list[TaskOrder]] = {}
        self._unfinished: dict[int, int] = {}  # tasks of each vertex
        self._sources: dict[int, list[int]] = {}  # the vertices that a vertex reads from
        self._with_code: set[int] = set()
        self._awaited: dict[str, list[int]] = {}  # producer → slots that do not know its place
        vertices = {task.id: task.vertex for task in plan.tasks}
        for task in plan.tasks:
            assert 0 <= task.slot < plan.slots, f"task {task.id} in slot {task.slot}"
            self._undeployed.setdefault(task.slot, []).append(task)
            self._unfinished[task.vertex] = self._unfinished.get(task.vertex, 0) + 1
            sources = self._sources.setdefault(task.vertex, [])
            sources += [vertices[producer] for producer in task.producers]
        self._sources = {vertex: list(dict.fromkeys(s)) for vertex, s in self._sources.items()}

    @property
    def is_complete(self) -> bool:
        """Whether every slot with tasks has its task manager."""
        return all(slot in self._addresses for slot in self._slots.values())

    def missing(self) -> list[int]:
        """The slots with tasks that nobody has registered for."""
        return sorted({*self._slots.values()} - self._addresses.keys())

    def arrived(self, slot: int, address: Address) -> list[tuple[int, Deploy | Placed]]:
        """A task manager serves the slot from now on; what is to be sent."""
        self._addresses[slot] = address
        placed: dict[int, dict[str, Address | None]] = {}
        for task in self._undeployed.get(slot, ()):
            for waiting in self._awaited.pop(task.id, ()):
                placed.setdefault(waiting, {})[task.id] = address
        news = [(waiting, Placed(self._plan.run, places)) for waiting, places in placed.items()]
        return [*news, *self._deploy(slot)]

    def all_arrived(self, addresses: Mapping[int, Address]) -> list[tuple[int, Deploy | Placed]]:
        """All task managers are there already; what is to be sent."""
        self._addresses.update(addresses)
        return [order for slot in sorted(addresses) for order in self._deploy(slot)]

    def finished(self, vertex: int) -> list[tuple[int, Deploy | Placed]]:
        """A task of this vertex has finished; what is to be sent."""
        self._unfinished[vertex] -= 1
        if not self._plan.batch or self._unfinished[vertex]:
            return []
        return [order for slot in sorted(self._addresses) for order in self._deploy(slot)]

    def _deploy(self, slot: int) -> list[tuple[int, Deploy | Placed]]:
        tasks = [task for task in self._undeployed.get(slot, ()) if self._is_due(task)]
        if not tasks:
            return []
        chosen = {task.id for task in tasks}
        self._undeployed[slot] = [t for t in self._undeployed[slot] if t.id not in chosen]
        code = None if slot in self._with_code else self._plan.code
        self._with_code.add(slot)
        plan, places = self._plan, self._places(slot, tasks)
        deploy = Deploy(
            plan.run,
            plan.job,
            plan.attempt,
            dict(plan.parameters),
            tasks,
            places,
            code,
            plan.checkpoints,
            plan.rows_wanted,
        )
        return [(slot, deploy)]

    def _is_due(self, task: TaskOrder) -> bool:
        return not self._plan.batch or not any(
            self._unfinished[vertex] for vertex in self._sources[task.vertex]
        )

    def _places(self, slot: int, tasks: list[TaskOrder]) -> dict[str, Address | None]:
        places: dict[str, Address | None] = {}
        for producer in dict.fromkeys(name for task in tasks for name in task.producers):
            there = self._slots[producer]
            if there == slot:
                places[producer] = None
            elif there in self._addresses:
                places[producer] = self._addresses[there]
            else:
                self._awaited.setdefault(producer, []).append(slot)
        return places
