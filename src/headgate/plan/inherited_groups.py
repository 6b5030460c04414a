"""Key groups of operators that nobody gave a number, when their job goes on from a checkpoint.

Without a number of its user's, an operator has as many as its parallelism asks for. Law: what a
user has named stays; any other operator that the checkpoint knows has as many as it had there, if
that is enough for its tasks, so that neither state nor chains depend on a default.
"""

from dataclasses import replace

from headgate.base.checkpoints import Metadata
from headgate.plan.recorded import Recorded
from headgate.plan.stream_graph import StreamGraph
from headgate.plan.uids import stable_uids


def inherit_groups(graph: StreamGraph, metadata: Metadata) -> StreamGraph:
    """The program with the key groups of the checkpoint; raises CheckpointUnsound."""
    operators, uids = Recorded(metadata).operators, stable_uids(graph)
    nodes = dict(graph.nodes)
    for number, node in graph.nodes.items():
        operator = operators.get(uids[number])
        if node.default_groups and operator is not None:
            had = operator.vertex.max_parallelism
            if had >= node.parallelism:
                nodes[number] = replace(node, max_parallelism=had)
    return replace(graph, nodes=nodes)
