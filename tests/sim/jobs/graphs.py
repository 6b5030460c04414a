"""Random programs, and what each of their sinks must get.

A draft grows from its sources: one operator after the other reads streams that are there already.
Beside every node stands a function from what its inputs bring to what it sends, as multisets, so
that the whole program has a plain reference.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import Final, TypeAlias, cast

from headgate.base.elements import Record
from headgate.core.chain.async_calls import BatchSettings
from headgate.core.chain.operator import Operator
from headgate.core.operators.async_wait import AsyncWaitOperator
from headgate.core.operators.one_input import (
    FilterOperator,
    FlatMapOperator,
    MapOperator,
    ProcessOperator,
)
from headgate.core.operators.reduce import ReduceOperator
from headgate.core.operators.sinks import SinkOperator, TwoPhaseSinkOperator
from headgate.core.operators.source import SourceOperator
from headgate.core.operators.split_discovery import SplitDiscovery
from headgate.core.operators.two_inputs import CoMapOperator
from headgate.functions.async_functions import (
    AsyncFunction,
    BatchAsyncFunction,
    Batching,
    RateLimit,
)
from headgate.functions.sink import Sink, TwoPhaseCommittingSink
from headgate.functions.source import Source
from headgate.functions.time import Time
from headgate.plan import ship_strategies as ships
from headgate.plan.stream_graph import (
    Chaining,
    NodeKind,
    ShipStrategy,
    StreamEdge,
    StreamGraph,
    StreamNode,
)
from headgate.sim.jobs.calls import NO_TIMEOUT_MS
from tests.sim.jobs import functions, operators
from tests.sim.jobs.functions import SIDE, Numbers, Run, Transactions, items_of_split
from tests.sim.jobs.records import Item

Items: TypeAlias = "Counter[Item]"
Reference: TypeAlias = Callable[[list[Items]], dict[str | None, Items]]
"""From what each input brings to what each output sends (None: the main one)."""

MAX_ITEMS: Final = 900
TIMEOUTS: Final = (-1, 0, 3, 20, 100)


@dataclass(frozen=True, slots=True)
class Stream:
    """An output that can be read."""

    node: int
    tag: str | None
    sources: frozenset[int]
    """Where its records come from."""


@dataclass(frozen=True, slots=True)
class ProgramShape:
    """What a draft is drawn from."""

    batch: bool
    records: int
    parallelism: int
    padding: tuple[int, ...]
    pauses: float
    pause_ms: float
    idles: bool
    stamps: bool
    commits: bool = False
    """Sinks commit in two phases, and no operator selects its inputs: checkpoints are taken."""
    discovers: bool = False
    """The driver finds the splits of sources while the job runs, and hands them out."""
    is_flat: bool = False
    """Records take one hop: tasks that read do not write, so that no stage waits for another."""


class Draft:
    """A program that grows."""

    def __init__(self, run: Run, shape: ProgramShape, random: Random) -> None:
        self.graph = StreamGraph(
            "sim",
            batch=shape.batch,
            chaining=random.random() < 0.8 or shape.is_flat,
            object_reuse=not run.behavior.changes,
            buffer_timeout_ms=random.choice(TIMEOUTS),
        )
        self.sent: dict[int, dict[str | None, Items]] = {}
        self.expected: dict[int, Items] = {}
        """At each sink."""
        self.selects = False
        """Whether an operator leaves an input unread for a while."""
        self._run = run
        self._shape = shape
        self._random = random
        self._breaks = () if shape.is_flat else (Chaining.HEAD, Chaining.NEVER)
        self._streams: list[Stream] = []
        self._read: list[Stream] = []

    def grow(self) -> None:
        """Sources, some operators, and a sink for every stream that nobody reads."""
        if self._shape.is_flat:
            self._grow_flat()
            return
        for _ in range(self._random.choice((1, 1, 2, 3))):
            self._add_source()
        steps = (
            *(self._add_map, self._add_map, self._add_filter, self._add_flat_map),
            *(self._add_reduce, self._add_reduce, self._add_splitter, self._add_keeper),
            *(self._add_union, self._add_two_inputs, self._add_calls, self._add_batch_calls),
        )
        for _ in range(self._random.choice((0, 1, 2, 3, 5))):
            self._random.choice(steps)()
        for stream in list(self._streams):
            if stream not in self._read:
                self._add_sink(stream)

    @property
    def records(self) -> int:
        """What all operators send."""
        return sum(items.total() for sent in self.sent.values() for items in sent.values())

    def _grow_flat(self) -> None:
        """Sources, and sinks that read one or two of them."""
        for _ in range(self._random.choice((1, 2, 2, 3))):
            self._add_source()
        while self._streams:
            joins = len(self._streams) > 1 and self._random.random() < 0.4
            if joins:
                self._random.choice((self._add_union, self._add_two_inputs))()
                self._streams = [stream for stream in self._streams if stream not in self._read]
            self._add_sink(self._streams.pop(), ships.forward() if joins else None)

    # What can be added.

    def _add_source(self) -> None:
        random, shape = self._random, self._shape
        parallelism = random.randint(1, shape.parallelism)
        number = len(self.graph.nodes)
        counts = tuple(
            random.randint(0, shape.records) for _ in range(parallelism + random.choice((0, 0, 1)))
        )
        bounded = random.random() < 0.7
        if shape.discovers:
            more = Random(f"discovery {self._run.seed} {number}")
            counts += tuple(more.randrange(shape.records) for _ in range(more.randrange(6)))
            # A task of an endless source without a split is idle, and what it reads later is late.
            bounded = bounded or (shape.stamps and not shape.idles)
        source = Numbers(
            self._run, number, counts, shape.padding, shape.pauses, shape.pause_ms, bounded
        )
        splits = tuple(source.splits(parallelism))
        items = Counter(item for split in splits for item in items_of_split(source, split))
        made = self._node(
            "source",
            lambda: SourceOperator(
                cast("Source", source), () if shape.discovers else splits, assigned=shape.discovers
            ),
            parallelism,
            [],
            lambda inputs: {None: items},
            NodeKind.SOURCE,
        )
        if shape.discovers:
            discovery = SplitDiscovery(cast("Source", source), "source", parallelism)
            self.graph.nodes[made.node].discovery = discovery
        if shape.stamps:
            self._streams.pop()
            number = len(self.graph.nodes)
            self._node(
                "stamper",
                lambda: operators.stamper(self._run, number, shape.idles),
                parallelism,
                [(made, ships.forward())],
                _same,
            )

    def _add_map(self) -> None:
        stream = self._pick()
        self._map_after(stream, None)

    def _map_after(self, stream: Stream, ship: ShipStrategy | None) -> None:
        number = len(self.graph.nodes)
        self._node(
            "map",
            lambda: MapOperator(functions.Mapper(self._run, number)),
            self._parallelism_for(stream, ship),
            [(stream, ship)],
            lambda inputs: {None: _with_values(inputs[0], number)},
        )

    def _add_filter(self) -> None:
        stream, number = self._pick(), len(self.graph.nodes)
        self._node(
            "filter",
            lambda: FilterOperator(functions.Filter(self._run, number)),
            self._random.randint(1, self._shape.parallelism),
            [(stream, None)],
            lambda inputs: {None: _those(inputs[0], functions.is_kept)},
        )
        self._map_after(self._streams.pop(), ships.forward())

    def _add_flat_map(self) -> None:
        stream, number = self._pick(), len(self.graph.nodes)
        self._node(
            "flat_map",
            lambda: FlatMapOperator(functions.FlatMapper(self._run, number)),
            self._random.randint(1, self._shape.parallelism),
            [(stream, None)],
            lambda inputs: {None: _flattened(inputs[0])},
        )

    def _add_calls(self) -> None:
        stream, number = self._pick(), len(self.graph.nodes)
        ordered, capacity = self._random.random() < 0.5, self._random.choice((1, 3, 100))
        self._node(
            "calls",
            lambda: AsyncWaitOperator(
                cast("AsyncFunction[Record, Record]", functions.Caller(self._run, number, ordered)),
                1000,
                capacity,
                ordered,
            ),
            self._random.randint(1, self._shape.parallelism),
            [(stream, None)],
            lambda inputs: {None: _with_values(inputs[0], number)},
        )

    def _add_batch_calls(self) -> None:
        stream, number = self._pick(), len(self.graph.nodes)
        ordered, size = self._random.random() < 0.5, self._random.choice((1, 3, 30))
        capacity = size * self._random.choice((1, 3))
        batching = Batching(
            size,
            Time.milliseconds(self._random.choice((0, 5, 50))),
            self._random.choice((None, 10.0)),
            self._random.choice((None, 1, 2)),
        )
        limit = RateLimit(2000, 20_000) if self._random.random() < 0.3 else None
        self._node(
            "batches",
            lambda: AsyncWaitOperator(
                cast(
                    "BatchAsyncFunction[Record, Record]",
                    functions.Caller(self._run, number, ordered),
                ),
                NO_TIMEOUT_MS,
                capacity,
                ordered,
                batches=BatchSettings(batching, limit),
            ),
            self._random.randint(1, self._shape.parallelism),
            [(stream, None)],
            lambda inputs: {None: _with_values(inputs[0], number)},
        )

    def _add_keeper(self) -> None:
        stream, number = self._pick(), len(self.graph.nodes)
        self._node(
            "keeper",
            lambda: operators.Keeper(self._run, number),
            self._random.randint(1, self._shape.parallelism),
            [(stream, None)],
            _same,
        )
        self._map_after(self._streams.pop(), ships.forward())

    def _add_splitter(self) -> None:
        stream, number = self._pick(), len(self.graph.nodes)

        def split(inputs: list[Items]) -> dict[str | None, Items]:
            side = _those(inputs[0], functions.is_for_side)
            main = inputs[0] - side
            return {None: _with_values(main, number), SIDE: _with_values(side, number)}

        made = self._node(
            "splitter",
            lambda: ProcessOperator(functions.Splitter(self._run, number)),
            self._random.randint(1, self._shape.parallelism),
            [(stream, None)],
            split,
        )
        self._streams.append(replace(made, tag=SIDE))

    def _add_reduce(self) -> None:
        stream, number = self._pick(), len(self.graph.nodes)
        self._node(
            "weigher",
            lambda: MapOperator(functions.Weigher(self._run, number)),
            self._random.randint(1, self._shape.parallelism),
            [(stream, None)],
            lambda inputs: {None: _weighed(inputs[0], number)},
        )
        batch, reducer = self._shape.batch, len(self.graph.nodes)
        self._node(
            "reduce",
            lambda: ReduceOperator(functions.Reducer(self._run, reducer), operators.key_of, batch),
            self._random.randint(1, self._shape.parallelism),
            [(self._streams.pop(), ships.hash_by(operators.key_of))],
            lambda inputs: {None: _reduced(inputs[0], number, batch)},
        )

    def _add_union(self) -> None:
        first, second = self._pick(), self._pick()
        if first == second:
            self._map_after(first, None)
            return
        number = len(self.graph.nodes)
        self._node(
            "union",
            lambda: MapOperator(functions.Mapper(self._run, number)),
            self._random.randint(1, self._shape.parallelism),
            [(first, None), (second, None)],
            lambda inputs: {None: _with_values(inputs[0], number)},
        )

    def _add_two_inputs(self) -> None:
        first, second, number = self._pick(), self._pick(), len(self.graph.nodes)
        make: Callable[[], Operator] = lambda: CoMapOperator(functions.CoMapper(self._run, number))  # noqa: E731
        apart = not first.sources & second.sources and not self._shape.commits
        if apart and self._random.random() < 0.3:
            only, self.selects = self._random.randrange(2), True
            make = lambda: operators.OneAfterTheOther(  # noqa: E731
                functions.CoMapper(self._run, number), only
            )

        def both(inputs: list[Items]) -> dict[str | None, Items]:
            return {None: _with_values(inputs[0], number) + _with_values(inputs[1], -number)}

        parallelism = self._random.randint(1, self._shape.parallelism)
        self._node(
            "co_map", make, parallelism, [(first, None), (second, None)], both, two_inputs=True
        )

    def _add_sink(self, stream: Stream, ship: ShipStrategy | None = None) -> None:
        number = len(self.graph.nodes)
        strict = not self._shape.idles
        made = self._node(
            "watcher",
            lambda: operators.Watcher(self._run, number, strict),
            self._parallelism_for(stream, ship),
            [(stream, ship)],
            _same,
        )
        sink = len(self.graph.nodes)
        self._node(
            "sink",
            lambda: self._make_sink(sink),
            self.graph.nodes[made.node].parallelism,
            [(self._streams.pop(), ships.forward())],
            _same,
            NodeKind.SINK,
        )
        self._streams.pop()
        self.expected[sink] = self.sent[sink][None]

    def _make_sink(self, number: int) -> Operator:
        if self._shape.commits:
            return TwoPhaseSinkOperator(
                cast("TwoPhaseCommittingSink", Transactions(self._run, number))
            )
        return SinkOperator(cast("Sink", functions.Collector(self._run, number)))

    # How it is added.

    def _node(
        self,
        name: str,
        make: Callable[[], Operator],
        parallelism: int,
        inputs: list[tuple[Stream, ShipStrategy | None]],
        reference: Reference,
        kind: NodeKind = NodeKind.OPERATOR,
        two_inputs: bool = False,
    ) -> Stream:
        random, number = self._random, len(self.graph.nodes)
        brought: list[Items] = [Counter(), Counter()]
        sources: frozenset[int] = frozenset() if inputs else frozenset({number})
        self.graph.nodes[number] = StreamNode(
            number, f"{name}{number}", kind, make, parallelism,
            chaining=random.choice((*[Chaining.ALWAYS] * 6, *self._breaks)),
            buffer_timeout_ms=random.choice((*[None] * 6, *TIMEOUTS)),
        )  # fmt: skip
        for place, (stream, ship) in enumerate(inputs):
            at = place if two_inputs else 0
            ship = ship or self._ship(stream, parallelism)
            copies = parallelism if ship.name == "BROADCAST" else 1
            items = self.sent[stream.node][stream.tag]
            brought[at] += Counter({item: count * copies for item, count in items.items()})
            self.graph.edges.append(StreamEdge(stream.node, number, at, ship, stream.tag))
            sources |= stream.sources
        self.sent[number] = reference(brought)
        made = Stream(number, None, sources)
        self._streams.append(made)
        return made

    def _pick(self) -> Stream:
        """A stream to read; seldom one that others read already."""
        unread = [stream for stream in self._streams if stream not in self._read]
        again = not unread or self._random.random() < 0.2
        stream = self._random.choice(self._streams if again else unread)
        self._read.append(stream)
        return stream

    def _parallelism_for(self, stream: Stream, ship: ShipStrategy | None) -> int:
        same = self.graph.nodes[stream.node].parallelism
        if ship is not None or self._random.random() < 0.5:
            return same
        return self._random.randint(1, self._shape.parallelism)

    def _ship(self, stream: Stream, parallelism: int) -> ShipStrategy:
        random = self._random
        choices = [
            *([ships.default_strategy()] * 3),
            *(
                ships.rebalance(),
                ships.rescale(),
                ships.shuffle(),
                ships.global_(),
                ships.hash_by(operators.key_of),
            ),
            ships.custom(_by_key, operators.key_of),
        ]
        if self._shape.is_flat:  # records do travel
            choices = choices[3:]
        if self.sent[stream.node][stream.tag].total() * parallelism <= MAX_ITEMS:
            choices.append(ships.broadcast())
        return random.choice(choices)


def _by_key(key: int, channels: int) -> int:
    return key % channels


def _same(inputs: list[Items]) -> dict[str | None, Items]:
    return {None: inputs[0]}


def _with_values(items: Items, node: int) -> Items:
    return _counted(
        ((key, functions.mapped(value, node), line, number), count)
        for (key, value, line, number), count in items.items()
    )


def _those(items: Items, wanted: Callable[[int], bool]) -> Items:
    return Counter({item: count for item, count in items.items() if wanted(item[1])})


def _flattened(items: Items) -> Items:
    return _counted(
        ((key, value, line, (*number, copy)), count)
        for (key, value, line, number), count in items.items()
        for copy in range(functions.copies_of(value))
    )


def _weighed(items: Items, node: int) -> Items:
    return _counted((functions.weighed(item[0], node), count) for item, count in items.items())


def _reduced(items: Items, node: int, batch: bool) -> Items:
    totals: Counter[int] = Counter()
    for (key, _, _, _), count in items.items():
        totals[key] += count
    return Counter(
        functions.weighed(key, node, count)
        for key, total in totals.items()
        for count in ((total,) if batch else range(1, total + 1))
    )


def _counted(pairs: Iterable[tuple[Item, int]]) -> Items:
    result: Items = Counter()
    for item, count in pairs:
        result[item] += count
    return result
