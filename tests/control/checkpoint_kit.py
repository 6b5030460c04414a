"""Small jobs and honest tasks for the tests of checkpoints."""

from typing import TypeVar

from headgate.base.checkpoints import (
    CheckpointFigures,
    EdgeShape,
    OperatorState,
    Piece,
    SubtaskState,
)
from headgate.base.messages import (
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
)
from headgate.base.recovery_settings import CheckpointSettings
from headgate.control.checkpoint_coordinator import CheckpointCoordinator
from headgate.control.checkpoint_history import CheckpointHistory
from headgate.control.effects import CheckpointEffect, Send, StoreCheckpoint
from headgate.control.pending_checkpoint import CheckpointedJob, CheckpointedTask

FIGURES = CheckpointFigures()
WALL_MS = 1_700_000_000_000
RUN = "run 1"
EDGES = (EdgeShape(0, 0, 1, 0, "HASH", False),)
_Effect = TypeVar("_Effect", bound=CheckpointEffect)
_Message = TypeVar("_Message", CheckpointTriggered, CheckpointCompleted, CheckpointAborted)


def member(task: str, parallelism: int, *producers: str) -> CheckpointedTask:
    vertex, subtask = map(int, task.split("."))
    operators = (OperatorState(f"uid {vertex}", f"operator {vertex}"),)
    blank = SubtaskState(task, vertex, subtask, parallelism, 128, operators, finished=True)
    return CheckpointedTask(blank, subtask, producers)


def row(*parallelism: int) -> CheckpointedJob:
    """Vertices in a row, all to all."""
    members: list[CheckpointedTask] = []
    before: list[str] = []
    for vertex, count in enumerate(parallelism):
        tasks = [f"{vertex}.{subtask}" for subtask in range(count)]
        members += [member(task, count, *before) for task in tasks]
        before = tasks
    return CheckpointedJob("job 1", "orders", tuple(members), EDGES)


def state(task: str, checkpoint: int, parallelism: int = 2) -> SubtaskState:
    """What a task has written, in a file of its own."""
    vertex, subtask = map(int, task.split("."))
    piece = Piece(f"chk-{checkpoint}/t-{task}", 0, 10, 0)
    operator = OperatorState(f"uid {vertex}", f"operator {vertex}", plain=piece)
    return SubtaskState(task, vertex, subtask, parallelism, 128, (operator,))


def coordinator(
    job: CheckpointedJob | None = None,
    history: CheckpointHistory | None = None,
    **settings: object,
) -> CheckpointCoordinator:
    """Started at 0, with a checkpoint every second, whose barriers stay in line."""
    given = {"interval_ms": 1_000, "unaligned": False, **settings}
    how = CheckpointSettings(**given)  # type: ignore[arg-type]
    job, history = job or row(2, 2), history or CheckpointHistory()
    checkpoints = CheckpointCoordinator(RUN, job, how, history, wall)
    assert checkpoints.started(0) == []
    return checkpoints


def wall() -> int:
    return WALL_MS


def only(kind: type[_Effect], effects: list[CheckpointEffect]) -> list[_Effect]:
    return [effect for effect in effects if isinstance(effect, kind)]


def triggered(effects: list[CheckpointEffect]) -> list[tuple[str, int]]:
    return [(message.task, message.checkpoint) for message in sent(CheckpointTriggered, effects)]


def sent(kind: type[_Message], effects: list[CheckpointEffect]) -> list[_Message]:
    """Messages to task managers; one to all of them counts once."""
    messages = [effect.message for effect in only(Send, effects)]
    found = [message for message in messages if isinstance(message, kind)]
    return [message for at, message in enumerate(found) if message not in found[:at]]


def complete(checkpoint: int, slots: int = 2) -> list[CheckpointEffect]:
    """All task managers learn that it is stored."""
    return [Send(slot, CheckpointCompleted(RUN, checkpoint)) for slot in range(slots)]


def abort(checkpoint: int, reason: str, slots: int = 2) -> list[CheckpointEffect]:
    """All task managers learn that it has come to nothing."""
    return [Send(slot, CheckpointAborted(RUN, checkpoint, reason)) for slot in range(slots)]


def ack(
    checkpoints: CheckpointCoordinator, checkpoint: int, *tasks: str, now_ms: float = 0
) -> list[CheckpointEffect]:
    effects: list[CheckpointEffect] = []
    for task in tasks:
        effects += checkpoints.acked(checkpoint, state(task, checkpoint), FIGURES, now_ms)
    return effects


ALL = ("0.0", "0.1", "1.0", "1.1")


def completed(checkpoints: CheckpointCoordinator, now_ms: float) -> list[CheckpointEffect]:
    """The next checkpoint is taken by all of ``row(2, 2)`` and stored, all at this time."""
    [first, *_] = triggered(checkpoints.tick(now_ms))
    [store] = only(StoreCheckpoint, ack(checkpoints, first[1], *ALL, now_ms=now_ms))
    return checkpoints.stored(store.metadata.checkpoint, now_ms)
