"""A planned job as its checkpoints see it: every task, its operators by uid, and its producers.

Law: a task is written down with all operators of its chain, also those without state, so that a
later program can tell which of its own had finished.
"""

from headgate.base.checkpoints import EdgeShape, OperatorState, SubtaskState
from headgate.control.pending_checkpoint import CheckpointedJob, CheckpointedTask
from headgate.plan.execution_graph import ExecutionGraph, TaskSpec
from headgate.plan.job_graph import JobGraph, JobVertex


def checkpointed_job(graph: JobGraph, execution: ExecutionGraph) -> CheckpointedJob:
    """What the coordinator of checkpoints has to know."""
    return CheckpointedJob(
        execution.job,
        graph.name,
        tuple(
            CheckpointedTask(_blank(graph.vertices[task.vertex], task), task.slot, _producers(task))
            for task in execution.tasks
        ),
        tuple(
            EdgeShape(e.source, e.output, e.target, e.gate, e.ship, e.pointwise, e.tag)
            for e in graph.edges
        ),
    )


def _blank(vertex: JobVertex, task: TaskSpec) -> SubtaskState:
    return SubtaskState(
        task=task.id,
        vertex=task.vertex,
        subtask=task.subtask,
        parallelism=vertex.parallelism,
        max_parallelism=vertex.max_parallelism,
        operators=tuple(OperatorState(one.uid, one.name) for one in vertex.chain.operators),
        finished=True,
    )


def _producers(task: TaskSpec) -> tuple[str, ...]:
    return tuple(dict.fromkeys(channel.producer for gate in task.gates for channel in gate))
