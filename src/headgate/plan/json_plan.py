"""The plan of a program as JSON, for ``get_execution_plan`` and the tools that draw it.

Law: only strings, numbers, lists and objects, so that Python's ``eval`` reads it too.
"""

import json

from headgate.plan.stream_graph import NodeKind, StreamGraph, StreamNode


def execution_plan_json(stream_graph: StreamGraph) -> str:
    """Nodes behind their inputs, sinks last."""
    nodes = sorted(stream_graph.in_order(), key=lambda node: node.kind is NodeKind.SINK)
    return json.dumps({"nodes": [_node(stream_graph, node) for node in nodes]}, indent=2)


def _node(graph: StreamGraph, node: StreamNode) -> dict[str, object]:
    return {
        "id": node.id,
        "type": node.title,
        "pact": node.kind.value,
        "contents": node.description or node.title,
        "parallelism": node.parallelism,
        "predecessors": [
            {"id": edge.source, "ship_strategy": graph.ship_name(edge), "side": _side(edge.input)}
            for edge in graph.inputs_of(node.id)
        ],
    }


def _side(number: int) -> str:
    """Which input of the operator it is; those of a union are all the first."""
    return ("first", "second")[number] if number < 2 else f"input {number + 1}"
