"""Between the plan's tasks and the orders of a simulated driver."""

from headgate.base.checkpoints import TaskRestore
from headgate.base.ids import PartitionId
from headgate.base.messages import ChannelOrder, OutputOrder, TaskOrder
from headgate.core.egress.partition import PartitionKind
from headgate.plan.execution_graph import ChannelSpec, OutputSpec, TaskSpec


def order_of(task: TaskSpec, given: TaskRestore | None = None) -> TaskOrder:
    """``given``: what it gets back of a checkpoint."""
    outputs = [OutputOrder(o.partition, o.kind.name, o.subpartitions) for o in task.outputs]
    gates = [
        tuple(ChannelOrder(c.partition, c.subpartition, c.producer) for c in gate)
        for gate in task.gates
    ]
    return TaskOrder(
        task.id, task.vertex, task.subtask, task.slot, tuple(outputs), tuple(gates), given
    )


def spec_of(order: TaskOrder) -> TaskSpec:
    """The task that an order names."""
    outputs = [
        OutputSpec(PartitionId(o.partition), PartitionKind[o.kind], o.subpartitions)
        for o in order.outputs
    ]
    gates = [
        tuple(ChannelSpec(PartitionId(c.partition), c.subpartition, c.producer) for c in gate)
        for gate in order.gates
    ]
    return TaskSpec(order.id, order.vertex, order.subtask, order.slot, tuple(outputs), tuple(gates))
