"""Between the plan's descriptions of tasks, exceptions, and how they travel in messages."""

import pickle
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from headgate.base.checkpoints import TaskRestore
from headgate.base.ids import PartitionId
from headgate.base.messages import ChannelOrder, CheckpointOrder, Failure, OutputOrder, TaskOrder
from headgate.control.deployment import RunPlan
from headgate.control.error_classes import is_consequence, is_damage, is_final, is_outside
from headgate.core.egress.partition import PartitionKind
from headgate.host.shipping.failed_records import record_of
from headgate.host.shipping.tracebacks import readable_traceback, root_of
from headgate.plan.checkpointed import checkpointed_job
from headgate.plan.execution_graph import (
    ChannelSpec,
    OutputSpec,
    TaskSpec,
    build_execution_graph,
)
from headgate.plan.job_graph import JobGraph

_TEXT_CHARS: Final = 64 * 1024
_EXCEPTION_BYTES: Final = 1024 * 1024


def plan_run(
    run: str,
    graph: JobGraph,
    code: bytes,
    attempt: int = 0,
    parameters: Mapping[str, str] | None = None,
    checkpoints: CheckpointOrder | None = None,
    restores: Mapping[str, TaskRestore] | None = None,
) -> RunPlan:
    """The plan of one run; ``run`` is in the name of every partition, so that runs do not mix.

    ``restores``: what each task gets back of a checkpoint, if there is one.
    """
    execution = build_execution_graph(graph, run, attempt)
    given = restores or {}
    return RunPlan(
        run,
        graph.name,
        tuple(order_of(task, given.get(task.id)) for task in execution.tasks),
        execution.slots,
        code,
        attempt,
        parameters or {},
        graph.batch,
        checkpoints,
        replace(checkpointed_job(graph, execution), job=checkpoints.job) if checkpoints else None,
        next((one.checkpoint for one in given.values()), None),
    )


def order_of(task: TaskSpec, restore: TaskRestore | None = None) -> TaskOrder:
    """A task of the plan, as it travels; ``restore``: what it gets back of a checkpoint."""
    return TaskOrder(
        task.id,
        task.vertex,
        task.subtask,
        task.slot,
        tuple(OutputOrder(o.partition, o.kind.name, o.subpartitions) for o in task.outputs),
        tuple(
            tuple(ChannelOrder(c.partition, c.subpartition, c.producer) for c in gate)
            for gate in task.gates
        ),
        restore,
    )


def spec_of(order: TaskOrder) -> TaskSpec:
    """The task that arrived, as the plan describes it."""
    return TaskSpec(
        id=order.id,
        vertex=order.vertex,
        subtask=order.subtask,
        slot=order.slot,
        outputs=tuple(
            OutputSpec(PartitionId(o.partition), PartitionKind[o.kind], o.subpartitions)
            for o in order.outputs
        ),
        gates=tuple(
            tuple(ChannelSpec(PartitionId(c.partition), c.subpartition, c.producer) for c in gate)
            for gate in order.gates
        ),
    )


def describe(error: BaseException) -> Failure:
    """An exception for the driver: as text in any case, and itself if it survives pickling."""
    return Failure(
        kind=f"{type(error).__module__}.{type(error).__qualname__}",
        message=_shortened(_text(error)),
        operator=str(getattr(error, "operator", None) or ""),
        traceback=_shortened(readable_traceback(error)),
        exception=_pickled(root_of(error)) or _pickled(error),
        is_consequence=is_consequence(error),
        is_final=is_final(error),
        is_damage=is_damage(error),
        is_outside=is_outside(error),
        record=record_of(error),
    )


def revive(failure: Failure) -> BaseException | None:
    """The exception itself, in the driver; None if it cannot be had. Only for proven peers."""
    if failure.exception is None:
        return None
    try:
        error = pickle.loads(failure.exception)
    except (Exception, SystemExit):
        return None
    return error if isinstance(error, BaseException) else None


def _pickled(error: BaseException) -> bytes | None:
    # An exception with a constructor of its own often cannot be made again; try that here.
    for form in (error, _PastConstructor(error)):
        with suppress(Exception):
            data = pickle.dumps(form, protocol=5)
            if len(data) <= _EXCEPTION_BYTES and type(pickle.loads(data)) is type(error):
                return data
    return None


class _PastConstructor:
    """Pickles an exception as its arguments and fields, as HeadgateError does."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __reduce__(self) -> tuple[object, ...]:
        error = self._error
        return _made, (type(error), error.args), error.__dict__


def _made(kind: type[BaseException], args: tuple[object, ...]) -> BaseException:
    return kind.__new__(kind, *args)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as other:
        return f"its text cannot be had ({type(other).__name__})"


def _shortened(text: str) -> str:
    # A surrogate that stands alone is no Unicode, and no message could carry it.
    text = text.encode(errors="backslashreplace").decode()
    half = _TEXT_CHARS // 2
    return text if len(text) <= _TEXT_CHARS else f"{text[:half]}\n…\n{text[-half:]}"
