"""The stream graph: the program as it was written, one node for each operator.

The API adds nodes and edges; nothing here runs. Union, partitioning and side outputs are no nodes:
they are ways of an edge.

Operators have uids, by which their state finds them when a program is run again. Law: the same
program gives the same uids. An operator keeps the uid that the user has set. Any other goes by its
place, the way from the sources to it: operators added elsewhere do not move it, nor does naming
another one.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Final

from headgate.base.elements import Key, Record, Serializer
from headgate.base.errors import PlanInvalid
from headgate.core.chain.operator import Operator
from headgate.core.chain.spec import OutputTypes, Selector
from headgate.core.egress.router import Router
from headgate.core.operators.split_discovery import SplitDiscovery
from headgate.functions.error_policy import ErrorPolicy
from headgate.plan.table import aligned

DEFAULT_GROUP: Final = "default"
MAX_KEY_GROUPS: Final = 1 << 15


class Chaining(Enum):
    """The operators that an operator may share a task with."""

    ALWAYS = "with the operator before and those after"
    HEAD = "only with those after: it begins a chain"
    NEVER = "with nobody"


class NodeKind(Enum):
    """What a node is in the plan that users see."""

    SOURCE = "Data Source"
    OPERATOR = "Operator"
    SINK = "Data Sink"


@dataclass(frozen=True, slots=True)
class ShipStrategy:
    """How records of an edge find their task: FORWARD, HASH, REBALANCE, and so on."""

    name: str
    make_router: Callable[[int], Router]
    """Given the index of the producing subtask."""
    pointwise: bool = False
    """A producer reaches only its own share of the consumers (FORWARD, RESCALE)."""
    chosen: bool = True
    """False: the default, which becomes REBALANCE where parallelism differs."""
    key_of: Callable[[Record], Key] | None = None
    """Takes the key of a record, for a HASH edge; its router is made again for the consumer."""
    key_type: object = None
    """What was declared of its keys; None: nothing."""
    key_columns: tuple[str, ...] = ()
    """The columns that hold the keys, for a HASH edge whose records are Arrow batches."""


@dataclass(frozen=True, slots=True)
class StreamEdge:
    """Records of ``source`` go to input ``input`` of ``target``."""

    source: int
    target: int
    input: int
    ship: ShipStrategy
    tag: str | None = None
    selected: frozenset[str] | None = None


@dataclass(slots=True)
class StreamNode:
    """One operator of the program."""

    id: int
    name: str
    kind: NodeKind
    make: Callable[[], Operator]
    parallelism: int
    max_parallelism: int = 128
    uid: str | None = None
    description: str | None = None
    group: str = DEFAULT_GROUP
    chaining: Chaining = Chaining.ALWAYS
    buffer_timeout_ms: int | None = None
    """None: the job's."""
    serializer: Serializer | None = None
    """For its main records where they leave the task; None: what the declared type says."""
    selectors: tuple[Selector, ...] = ()
    functions: tuple[tuple[str, object], ...] = ()
    """The user's objects in it by role ("map function", …), so that an error can name them."""
    types: OutputTypes | None = None
    """What its records are coerced to; None: nothing was declared."""
    source: object | None = None
    """What a source reads; it may say that it cannot be read again."""
    on_error: ErrorPolicy = ErrorPolicy.FAIL
    """What becomes of records that it fails for."""
    discovery: SplitDiscovery | None = None
    """How the driver finds its splits while the job runs; None: they were dealt out before."""
    default_groups: bool = False
    """The user has not set ``max_parallelism``: it may become that of a checkpoint."""
    default_parallelism: bool = False
    """The user has not set ``parallelism``, for this operator or for all."""

    @property
    def title(self) -> str:
        """The name with the word that tells sources and sinks, e.g. ``Source: words``."""
        word = {NodeKind.SOURCE: "Source: ", NodeKind.SINK: "Sink: "}.get(self.kind, "")
        return self.name if self.name.startswith(word) else word + self.name


@dataclass(slots=True)
class StreamGraph:
    """Nodes by id and edges in the order in which they were written."""

    job_name: str = "unnamed"
    nodes: dict[int, StreamNode] = field(default_factory=dict)
    edges: list[StreamEdge] = field(default_factory=list)
    batch: bool = False
    chaining: bool = True
    object_reuse: bool = False
    buffer_timeout_ms: int = 100

    def inputs_of(self, node: int) -> list[StreamEdge]:
        return [edge for edge in self.edges if edge.target == node]

    def outputs_of(self, node: int) -> list[StreamEdge]:
        return [edge for edge in self.edges if edge.source == node]

    def in_order(self) -> list[StreamNode]:
        """Every node after its inputs; otherwise as they were written."""
        waiting = dict.fromkeys(self.nodes, 0)
        consumers: dict[int, list[int]] = {node: [] for node in self.nodes}
        for edge in self.edges:
            waiting[edge.target] += 1
            consumers[edge.source].append(edge.target)
        places = {node: place for place, node in enumerate(self.nodes)}
        ready = [(places[node], node) for node, inputs in waiting.items() if not inputs]
        ordered = []
        while ready:
            _, node = heappop(ready)
            ordered.append(self.nodes[node])
            for target in consumers[node]:
                waiting[target] -= 1
                if not waiting[target]:
                    heappush(ready, (places[target], target))
        assert len(ordered) == len(self.nodes), f"job {self.job_name!r} has a cycle"
        return ordered

    def is_spread(self, edge: StreamEdge) -> bool:
        """Whether it has the default strategy and parallelism differs: it is rebalanced."""
        source, target = self.nodes[edge.source], self.nodes[edge.target]
        return not edge.ship.chosen and source.parallelism != target.parallelism

    def ship_name(self, edge: StreamEdge) -> str:
        """Name of the strategy that the edge ends up with."""
        return "REBALANCE" if self.is_spread(edge) else edge.ship.name

    def describe(self) -> str:
        """A line for each node, with what it reads."""
        rows = [
            (str(node.id), node.title, f"x{node.parallelism}", self._describe_inputs(node.id))
            for node in self.in_order()
        ]
        mode = "batch" if self.batch else "streaming"
        return f"stream graph of {self.job_name!r}, {mode}\n" + aligned(
            ("node", "operator", "tasks", "reads"), rows
        )

    def _describe_inputs(self, node: int) -> str:
        return ", ".join(
            f"{edge.source} {self.ship_name(edge)}"
            + (f" to input {edge.input}" if edge.input else "")
            + describe_filter(edge.tag, edge.selected)
            for edge in self.inputs_of(node)
        )


def describe_filter(tag: str | None, selected: frozenset[str] | None) -> str:
    """Which records of an output an edge takes, in words; nothing if it takes all of them."""
    words = "" if tag is None else f" of side output {tag!r}"
    return words if selected is None else f"{words} selecting {', '.join(sorted(selected))}"


def default_max_parallelism(parallelism: int) -> int:
    """Key groups if the user has set none: one and a half times as many, up to a power of two."""
    return min(max(128, 1 << (parallelism + parallelism // 2 - 1).bit_length()), MAX_KEY_GROUPS)


def execution_plan_json(stream_graph: StreamGraph) -> str:
    """The plan for ``get_execution_plan`` and tools that draw it: nodes after inputs, sinks last.

    Law: only strings, numbers, lists and objects, so that Python's ``eval`` reads it too.
    """
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
