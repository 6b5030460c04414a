"""Chaining: which operators share a task, and what such a chain is called.

Law: an edge is chained only if no record could tell the difference: it is the only one into its
target, and both sides have the same tasks in the same slots. The job graph calls this.
"""

from collections.abc import Mapping, Sequence

from headgate.plan.stream_graph import Chaining, Ship, StreamEdge, StreamGraph


def chained_edges(graph: StreamGraph, ships: Sequence[Ship]) -> list[bool]:
    """For each edge of the graph whether it stays within a task."""
    inputs = dict.fromkeys(graph.nodes, 0)
    for edge in graph.edges:
        inputs[edge.target] += 1
    return [
        inputs[edge.target] == 1 and ship.name == "FORWARD" and _may_chain(graph, edge)
        for edge, ship in zip(graph.edges, ships, strict=True)
    ]


def _may_chain(graph: StreamGraph, edge: StreamEdge) -> bool:
    source, target = graph.nodes[edge.source], graph.nodes[edge.target]
    return (
        graph.chaining
        and source.chaining is not Chaining.NEVER
        and target.chaining is Chaining.ALWAYS
        and source.parallelism == target.parallelism
        and source.max_parallelism == target.max_parallelism
        and source.group == target.group
    )


def members_of(head: int, followers: Mapping[int, Sequence[int]]) -> list[int]:
    """The nodes of a chain, each behind the one it reads from, branch after branch."""
    members = []
    ahead = [head]
    while ahead:
        node = ahead.pop()
        members.append(node)
        ahead.extend(reversed(followers[node]))
    return members


def chain_name(
    members: Sequence[int], followers: Mapping[int, Sequence[int]], titles: Mapping[int, str]
) -> str:
    """What a chain is called, e.g. ``Source: words -> map -> (filter, Sink: print)``."""
    names: dict[int, str] = {}
    for node in reversed(members):
        behind = [names[follower] for follower in followers[node]]
        names[node] = titles[node]
        if len(behind) == 1:
            names[node] += f" -> {behind[0]}"
        elif behind:
            names[node] += f" -> ({', '.join(behind)})"
    return names[members[0]]
