"""Programs to plan: a short way to write one, and random ones for Hypothesis."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from headgate.core.chain.operator import Operator
from headgate.plan import ship_strategies as ships
from headgate.plan.stream_graph import (
    Chaining,
    NodeKind,
    ShipStrategy,
    StreamEdge,
    StreamGraph,
    StreamNode,
)


class Program:
    """Writes a stream graph a line at a time; every method answers with the new node's id."""

    def __init__(self, name: str = "words", parallelism: int = 2, **settings: Any) -> None:
        self.graph = StreamGraph(name, **settings)
        self.parallelism = parallelism

    def source(self, name: str = "source", **fields: Any) -> int:
        return self._node(name, NodeKind.SOURCE, fields)

    def operator(self, name: str, *inputs: Any, **fields: Any) -> int:
        """Each input is a node id or what ``reads`` has made."""
        return self._node(name, NodeKind.OPERATOR, fields, inputs)

    def sink(self, name: str, *inputs: Any, **fields: Any) -> int:
        return self._node(name, NodeKind.SINK, fields, inputs)

    def _node(
        self, name: str, kind: NodeKind, fields: dict[str, Any], inputs: tuple[Any, ...] = ()
    ) -> int:
        node = len(self.graph.nodes) + 1
        fields = {"parallelism": self.parallelism, **fields}
        self.graph.nodes[node] = StreamNode(node, name, kind, Operator, **fields)
        for read in inputs:
            edge = reads(read) if isinstance(read, int) else read
            self.graph.edges.append(replace(edge, target=node))
        return node


def reads(
    source: int, ship: ShipStrategy | None = None, number: int = 0, **fields: Any
) -> StreamEdge:
    """An edge from ``source`` to input ``number`` of the node that is about to be written."""
    return StreamEdge(source, -1, number, ship or ships.default_strategy(), **fields)


def key_of(record: str) -> str:
    return record[:1]


def to_last(key: str, channels: int) -> int:
    return channels - 1


SHIPS = (
    ships.rebalance(),
    ships.rescale(),
    ships.shuffle(),
    ships.broadcast(),
    ships.global_(),
    ships.hash_by(key_of),
    ships.custom(to_last, key_of),
)


@st.composite
def programs(draw: st.DrawFn) -> StreamGraph:
    """Any valid program: branches, unions, two inputs, side outputs, all ships and settings."""
    program = Program(
        batch=draw(st.booleans()),
        chaining=draw(st.sampled_from([True, True, False])),
        object_reuse=draw(st.booleans()),
    )
    nodes = program.graph.nodes
    for number in range(draw(st.integers(1, 10))):
        fields = {
            "parallelism": draw(st.sampled_from([1, 2, 2, 2, 3, 5])),
            "max_parallelism": draw(st.sampled_from([128, 128, 128, 256])),
            "group": draw(st.sampled_from(["default", "default", "default", "other"])),
            "chaining": draw(st.sampled_from([Chaining.ALWAYS] * 3 + [*Chaining])),
        }
        fan_in = draw(st.sampled_from([0, 1, 1, 1, 1, 2, 3])) if nodes else 0
        if not fan_in:
            program.source(f"source {number}", **fields)
            continue
        inputs = []
        for _ in range(fan_in):
            source = draw(st.sampled_from(sorted(nodes)))
            same = nodes[source].parallelism == fields["parallelism"]
            chosen = [ships.forward()] if same else []
            ship = draw(
                st.one_of(st.just(ships.default_strategy()), st.sampled_from([*chosen, *SHIPS]))
            )
            tag = draw(st.sampled_from([None, None, "late"]))
            selected = draw(st.sampled_from([None, None, frozenset({"even"})]))
            place = draw(st.integers(0, fan_in - 1))
            inputs.append(reads(source, ship, place, tag=tag, selected=selected))
        write = draw(st.sampled_from([program.operator, program.sink]))
        write(f"operator {number}", *inputs, **fields)
    return program.graph


def renumbered(graph: StreamGraph, offset: int) -> StreamGraph:
    """The same program, with other ids for its nodes."""
    again = StreamGraph(graph.job_name, batch=graph.batch, chaining=graph.chaining)
    again.nodes = {n + offset: replace(node, id=n + offset) for n, node in graph.nodes.items()}
    again.edges = [
        replace(e, source=e.source + offset, target=e.target + offset) for e in graph.edges
    ]
    return again
