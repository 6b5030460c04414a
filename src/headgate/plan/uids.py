"""Uids: which operator is which when a program is run again, so that its state finds it.

Law: the same program gives the same uids. What a user has named keeps that name; any other operator
goes by its place, the way from the sources to it. Operators added elsewhere do not move it, nor
does naming another one.
"""

import re
from hashlib import blake2b
from typing import Final

from headgate.base.errors import PlanInvalid
from headgate.plan.stream_graph import StreamEdge, StreamGraph

_PLACE_BYTES: Final = 16
_PLACE: Final = re.compile(f"[0-9a-f]{{{2 * _PLACE_BYTES}}}")


def is_place(uid: str) -> bool:
    """Whether a uid tells a place in the graph, and was not given by a user."""
    return _PLACE.fullmatch(uid) is not None


def stable_uids(graph: StreamGraph) -> dict[int, str]:
    """The uid of every node; raises PlanInvalid if two were given the same one."""
    owners: dict[str, str] = {}
    uids = {}
    for node, place in _places(graph).items():
        name = graph.nodes[node].name
        uid = uids[node] = graph.nodes[node].uid or place
        if uid in owners:
            raise PlanInvalid(
                f"has the uid {uid!r}, which {owners[uid]!r} has already; "
                f"give each operator a uid of its own",
                name,
            )
        owners[uid] = name
    return uids


def _places(graph: StreamGraph) -> dict[int, str]:
    inputs: dict[int, list[StreamEdge]] = {node: [] for node in graph.nodes}
    for edge in graph.edges:
        inputs[edge.target].append(edge)
    places: dict[int, str] = {}
    siblings: dict[str, int] = {}
    for node in graph.in_order():
        way = ascii(
            [
                (edge.input, places[edge.source], edge.tag, sorted(edge.selected or ()))
                for edge in sorted(inputs[node.id], key=lambda edge: edge.input)
            ]
        )
        number = siblings[way] = siblings.get(way, -1) + 1
        places[node.id] = blake2b(f"{way} {number}".encode(), digest_size=_PLACE_BYTES).hexdigest()
    return places
