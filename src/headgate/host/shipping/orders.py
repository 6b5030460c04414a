"""Between the plan's descriptions of tasks, exceptions, and how they travel in messages."""

from collections.abc import Mapping
from dataclasses import replace

from headgate.base.checkpoints import TaskRestore
from headgate.base.ids import PartitionId
from headgate.base.messages import ChannelOrder, CheckpointOrder, OutputOrder, TaskOrder
from headgate.control.deployment import RunPlan
from headgate.core.egress.partition import PartitionKind
from headgate.plan.execution_graph import (
    ChannelSpec,
    OutputSpec,
    TaskSpec,
    build_execution_graph,
    checkpointed_job,
)
from headgate.plan.job_graph import JobGraph


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
        next((restore.checkpoint for restore in given.values()), None),
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
