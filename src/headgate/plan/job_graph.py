"""The job graph: chains of operators as vertices, joined by the edges that cross the network.

``build_job_graph`` makes it from a program. Law: every edge of the program is either inside one
chain or one job edge with a partition and a gate of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from headgate.base.elements import Serializer
from headgate.base.errors import PlanInvalid
from headgate.core.chain.operator import Operator
from headgate.core.chain.spec import (
    ChainSpec,
    OperatorSpec,
    PartitionSpec,
    ToNetwork,
    ToOperator,
)
from headgate.core.egress.partition import PartitionKind
from headgate.core.operators.split_discovery import SplitDiscovery
from headgate.plan.ship_strategies import resolve_strategy
from headgate.plan.stream_graph import (
    MAX_KEY_GROUPS,
    Chaining,
    NodeKind,
    ShipStrategy,
    StreamEdge,
    StreamGraph,
    StreamNode,
    describe_filter,
    stable_uids,
)
from headgate.plan.table import aligned


@dataclass(frozen=True, slots=True)
class JobEdge:
    """Partition ``output`` of vertex ``source`` is read by gate ``gate`` of vertex ``target``."""

    source: int
    output: int
    target: int
    gate: int
    """Among all gates of the target."""
    input: int
    """Which input of the head operator the gate belongs to; several gates of one input: a union."""
    ship: str
    pointwise: bool
    kind: PartitionKind
    tag: str | None = None
    selected: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class JobVertex:
    """One chain; each of its parallel copies is a task."""

    id: int
    """Its place in ``JobGraph.vertices``."""
    name: str
    chain: ChainSpec
    parallelism: int
    max_parallelism: int
    group: str
    gate_inputs: tuple[int, ...]
    """The input of the head operator that each gate belongs to."""
    is_source: bool
    gate_serializers: tuple[Serializer | None, ...] = ()
    """The serializer that the producers of each gate write with."""

    def outline(self) -> "JobVertex":
        """This vertex to look at; it cannot be run."""
        operators = tuple(
            OperatorSpec(op.id, op.name, op.uid, _unrunnable, op.outputs, key_type=op.key_type)
            for op in self.chain.operators
        )
        chain = ChainSpec(operators, object_reuse=self.chain.object_reuse)
        return replace(self, chain=chain, gate_serializers=())


@dataclass(frozen=True, slots=True)
class JobGraph:
    """Vertices in topological order."""

    name: str
    vertices: tuple[JobVertex, ...]
    edges: tuple[JobEdge, ...]
    batch: bool = False
    discoveries: Mapping[int, SplitDiscovery] = field(default_factory=dict)
    """How the driver finds the splits of a source, by vertex; they do not travel with the code."""
    slots_per_worker: int = 1

    def inputs_of(self, vertex: int) -> list[JobEdge]:
        """Its edges by gate."""
        return sorted((e for e in self.edges if e.target == vertex), key=lambda edge: edge.gate)

    def outputs_of(self, vertex: int) -> list[JobEdge]:
        """Its edges by partition."""
        return sorted((e for e in self.edges if e.source == vertex), key=lambda edge: edge.output)

    def outline(self) -> "JobGraph":
        """This graph to look at: without functions, and so without what these hold."""
        outlines = tuple(vertex.outline() for vertex in self.vertices)
        return replace(self, vertices=outlines, discoveries={})

    def describe(self) -> str:
        """A line for each vertex, with what it reads."""
        rows = [
            (str(v.id), v.name, f"x{v.parallelism}", v.group, self._describe_inputs(v.id))
            for v in self.vertices
        ]
        mode = "batch: readers start when producers have ended" if self.batch else "streaming"
        return f"job graph of {self.name!r}, {mode}\n" + aligned(
            ("vertex", "operators", "tasks", "slot group", "reads"), rows
        )

    def _describe_inputs(self, vertex: int) -> str:
        return ", ".join(
            f"{edge.source} {edge.ship}"
            + (f" to input {edge.input}" if edge.input else "")
            + describe_filter(edge.tag, edge.selected)
            for edge in self.inputs_of(vertex)
        )


def _unrunnable() -> Operator:
    raise AssertionError("an outline of a job graph cannot be run")


def build_job_graph(graph: StreamGraph) -> JobGraph:
    """Chain what can be chained; raises PlanInvalid if the program cannot run."""
    check_program(graph)
    return _Builder(graph).build()


class _Builder:
    """Builds the vertices and edges; edges go by number, because two of them may be equal."""

    def __init__(self, graph: StreamGraph) -> None:
        self._graph = graph
        self._uids = stable_uids(graph)
        self._ships = [resolve_strategy(graph, edge) for edge in graph.edges]
        self._chained = _chained_edges(graph, self._ships)
        self._outputs: dict[int, list[int]] = {node: [] for node in graph.nodes}
        self._inputs: dict[int, list[int]] = {node: [] for node in graph.nodes}
        self._followers: dict[int, list[int]] = {node: [] for node in graph.nodes}
        for number, edge in enumerate(graph.edges):
            self._outputs[edge.source].append(number)
            self._inputs[edge.target].append(number)
            if self._chained[number]:
                self._followers[edge.source].append(edge.target)
        for numbers in self._inputs.values():  # gates of one input stand side by side
            numbers.sort(key=lambda number: graph.edges[number].input)
        followers = {node for nodes in self._followers.values() for node in nodes}
        self._heads = [node.id for node in graph.in_order() if node.id not in followers]
        self._vertices = {head: place for place, head in enumerate(self._heads)}
        self._kind = PartitionKind.BLOCKING if graph.batch else PartitionKind.PIPELINED_BOUNDED

    def build(self) -> JobGraph:
        vertices, edges = [], []
        for head in self._heads:
            members = members_of(head, self._followers)
            crossing = [
                number
                for node in members
                for number in self._outputs[node]
                if not self._chained[number]
            ]
            vertices.append(self._vertex(head, members, crossing))
            edges += [self._edge(head, output, number) for output, number in enumerate(crossing)]
        discoveries = {
            place: discovery
            for head, place in self._vertices.items()
            if (discovery := self._graph.nodes[head].discovery) is not None
        }
        graph = self._graph
        return JobGraph(graph.job_name, tuple(vertices), tuple(edges), graph.batch, discoveries)

    def _vertex(self, head: int, members: list[int], crossing: list[int]) -> JobVertex:
        graph, gates = self._graph, self._inputs[head]
        titles = {node: graph.nodes[node].title for node in members}
        first = graph.nodes[head]
        return JobVertex(
            id=self._vertices[head],
            name=chain_name(members, self._followers, titles),
            chain=self._chain(members, crossing),
            parallelism=first.parallelism,
            max_parallelism=first.max_parallelism,
            group=first.group,
            gate_inputs=tuple(graph.edges[number].input for number in gates),
            is_source=not gates,
            gate_serializers=tuple(self._serializer(graph.edges[number]) for number in gates),
        )

    def _chain(self, members: list[int], crossing: list[int]) -> ChainSpec:
        places = {node: place for place, node in enumerate(members)}
        partitions = {number: place for place, number in enumerate(crossing)}
        operators = []
        for node in map(self._graph.nodes.__getitem__, members):
            outputs: list[ToOperator | ToNetwork] = []
            for number in self._outputs[node.id]:
                edge = self._graph.edges[number]
                if self._chained[number]:
                    to = places[edge.target]
                    outputs.append(ToOperator(to, edge.input, edge.tag, edge.selected))
                else:
                    outputs.append(ToNetwork(partitions[number], edge.tag, edge.selected))
            operators.append(
                OperatorSpec(
                    id=node.id,
                    name=node.name,
                    uid=self._uids[node.id],
                    make=node.make,
                    outputs=tuple(outputs),
                    selectors=node.selectors,
                    types=node.types,
                    key_type=self._key_type(node.id),
                    record_type=self._record_type(node.id),
                    on_error=node.on_error,
                )
            )
        specs = tuple(map(self._partition, crossing))
        return ChainSpec(tuple(operators), specs, self._graph.object_reuse)

    def _key_type(self, node: int) -> object:
        """Declared of the keys by which records come to a node; None: nothing."""
        types = [self._graph.edges[number].ship.key_type for number in self._inputs[node]]
        return next((declared for declared in types if declared is not None), None)

    def _record_type(self, node: int) -> object:
        """Declared of the records of a node with one input; None: nothing, or not of all."""
        edges = [self._graph.edges[number] for number in self._inputs[node]]
        found: list[object] = []
        for edge in edges:
            types = self._graph.nodes[edge.source].types
            found.append(None if types is None else types.of(edge.tag))
        is_declared = (
            found and edges[-1].input == 0 and all(declared == found[0] for declared in found)
        )
        return found[0] if is_declared else None

    def _partition(self, number: int) -> PartitionSpec:
        edge = self._graph.edges[number]
        timeout_ms = self._graph.nodes[edge.source].buffer_timeout_ms
        if timeout_ms is None:
            timeout_ms = self._graph.buffer_timeout_ms
        return PartitionSpec(
            make_router=self._ships[number].make_router,
            serializer=self._serializer(edge),
            # Nobody reads a blocking partition before its end: its buffers may fill up.
            timeout_ms=timeout_ms if self._kind.is_pipelined else -1,
        )

    def _serializer(self, edge: StreamEdge) -> Serializer | None:
        """The node's own is for its main output; otherwise that of the declared type, if any."""
        node = self._graph.nodes[edge.source]
        if node.serializer is not None and edge.tag is None:
            return node.serializer
        return None if node.types is None else node.types.serializer(edge.tag)

    def _edge(self, head: int, output: int, number: int) -> JobEdge:
        edge, ship = self._graph.edges[number], self._ships[number]
        return JobEdge(
            source=self._vertices[head],
            output=output,
            target=self._vertices[edge.target],
            gate=self._inputs[edge.target].index(number),
            input=edge.input,
            ship=ship.name,
            pointwise=ship.pointwise,
            kind=self._kind,
            tag=edge.tag,
            selected=edge.selected,
        )


def _chained_edges(graph: StreamGraph, ships: Sequence[ShipStrategy]) -> list[bool]:
    """For each edge of the graph whether it stays within a task.

    Law: an edge is chained only if no record could tell the difference: it is the only one into its
    target, and both sides have the same tasks in the same slots.
    """
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
    """The nodes of a chain, each after the one it reads from, branch after branch."""
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
        after = [names[follower] for follower in followers[node]]
        names[node] = titles[node]
        if len(after) == 1:
            names[node] += f" -> {after[0]}"
        elif after:
            names[node] += f" -> ({', '.join(after)})"
    return names[members[0]]


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
