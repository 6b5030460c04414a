"""What a program must hold to before it becomes a job; anything else is told by name."""

from typing import Final

from headgate.base.errors import PlanInvalid
from headgate.plan.stream_graph import NodeKind, StreamGraph, StreamNode

MAX_KEY_GROUPS: Final = 1 << 15


def check_program(graph: StreamGraph) -> None:
    """Raise PlanInvalid if the program cannot run."""
    if not graph.nodes:
        raise PlanInvalid(
            f"job {graph.job_name!r} has no operators, so there is nothing to execute; "
            f"add a source and what reads it before you execute the job"
        )
    for node in graph.nodes.values():
        _check_parallelism(node)
    readers = {edge.target for edge in graph.edges}
    for node in graph.nodes.values():
        is_source = node.kind is NodeKind.SOURCE
        assert is_source != (node.id in readers), f"{node.name!r}: {node.kind} with wrong inputs"


def _check_parallelism(node: StreamNode) -> None:
    if node.parallelism < 1:
        raise PlanInvalid(
            f"has parallelism {node.parallelism}; set_parallelism() takes 1 or more", node.name
        )
    if not 1 <= node.max_parallelism <= MAX_KEY_GROUPS:
        raise PlanInvalid(
            f"has max parallelism {node.max_parallelism}; "
            f"set_max_parallelism() takes 1 to {MAX_KEY_GROUPS}",
            node.name,
        )
    if node.parallelism > node.max_parallelism:
        raise PlanInvalid(
            f"has parallelism {node.parallelism}, above its max parallelism "
            f"{node.max_parallelism}; lower the one with set_parallelism() "
            f"or raise the other with set_max_parallelism()",
            node.name,
        )
