"""A harness around one function or operator: a test feeds it and reads what comes of it.

It is a small program with hand-filled sources in front (``run_local``), so that the operator, its
state, timers, serializers and snapshots are those that run on Spark.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from headgate.api.async_data_stream import AsyncDataStream
from headgate.api.datastream import DataStream
from headgate.api.environment import StreamExecutionEnvironment
from headgate.base.elements import MIN_WATERMARK_MS, Bundle, Record
from headgate.base.errors import HarnessMisused, HeadgateError, JobFailed
from headgate.base.values import own
from headgate.core.chain.operator import Operator, Output
from headgate.core.chain.spec import OperatorSpec
from headgate.functions.async_functions import AsyncFunction
from headgate.functions.broadcast_functions import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
)
from headgate.functions.function import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ReduceFunction,
)
from headgate.functions.state import MapStateDescriptor, StateDescriptor
from headgate.functions.time import Time
from headgate.functions.window_functions import (
    AggregateFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from headgate.plan.job_graph import JobVertex
from headgate.testing.local_run import LocalRun, PendingTimer, ProgramSnapshot
from headgate.testing.sources import ManualSource

KeyOf: TypeAlias = Callable[[Any], Any]
Apply: TypeAlias = Callable[..., DataStream]
Self = TypeVar("Self", bound="OperatorHarness")

NAME = "operator under test"


class OperatorHarness:
    """Around what a function makes of one or two streams.

    ::

        harness = OperatorHarness(
            lambda clicks: clicks.key_by(user).window(minutes).reduce(add)
        )
        harness.send(click, timestamp=10)
        harness.advance_watermark(60_000)
        assert harness.output == [...]

    With ``inputs=2`` it is given two streams. Use it in a ``with`` block, or call ``close()``, if
    the functions hold anything open.
    """

    def __init__(
        self,
        apply: Apply,
        *,
        inputs: int = 1,
        parallelism: int = 1,
        start_ms: int = 0,
        restore: ProgramSnapshot | None = None,
    ) -> None:
        """``parallelism``: how many tasks share the keys; ``start_ms``: what the clock shows."""
        self._sources = [ManualSource(f"input {number}") for number in range(1, inputs + 1)]
        self._sides = SideOutputs(NAME)
        self._name: str | None = None
        """The operator's name; None: there are several, as in a union."""
        self._run = LocalRun(parallelism, None, start_ms, restore, self._sides.wrap)
        with self._users_errors():
            self._run._start(lambda env: self._build(env, apply), None)

    # What goes in.

    def send(self, value: Record, timestamp: int | None = None, input: int = 1) -> None:
        """One record, with its event time or without; ``input``: 1 or 2."""
        source = self._source(input)
        with self._users_errors():
            source.send(value, timestamp)

    def advance_watermark(self, timestamp_ms: int, input: int | None = None) -> None:
        """Advance event time, on one input or (None) on all."""
        with self._users_errors():
            for number in range(len(self._sources)) if input is None else (input - 1,):
                self._source(number + 1).advance_watermark(timestamp_ms)

    def advance_clock(self, duration_ms: float) -> None:
        """Let so much processing time pass."""
        with self._users_errors():
            self._run.advance_clock(duration_ms)

    def finish(self) -> None:
        """The inputs end: event-time timers and windows fire, and the function is closed."""
        with self._users_errors():
            self._run.finish()

    def close(self) -> None:
        """Forget it; idempotent."""
        self._run.close()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # What comes of it.

    @property
    def output(self) -> list[Any]:
        """What was emitted, in order; ``clear_output`` forgets it."""
        return [value for value, _ in self._run.output]

    @property
    def timed_output(self) -> list[tuple[Any, int | None]]:
        """The emitted records with their timestamps, in order."""
        return [
            (value, None if time_ms == MIN_WATERMARK_MS else time_ms)
            for value, time_ms in self._run.output
        ]

    def side_output(self, tag: OutputTag) -> list[Any]:
        """What was emitted to a side output, in order."""
        if not isinstance(tag, OutputTag):
            raise HarnessMisused(f"side_output() was given {tag!r}; give an OutputTag")
        return list(self._sides.records.get(tag.tag_id, ()))

    def clear_output(self) -> None:
        """Forget what was emitted so far."""
        self._run.output.clear()
        self._sides.records.clear()

    def state(self, state: StateDescriptor | str, key: object) -> Any:
        """What a keyed state holds at a key; None, an empty list or an empty dict: nothing."""
        return self._run.state(state, key, self._name)

    def timers(self, key: object = None) -> list[PendingTimer]:
        """Timers that have not fired, those that are due first in front; ``key`` None: of all."""
        return self._run.timers(key, self._name)

    @property
    def now_ms(self) -> int:
        """What the clock shows."""
        return self._run.now_ms

    def snapshot(self) -> ProgramSnapshot:
        """A savepoint, as the function has it now; it goes on."""
        with self._users_errors():
            return self._run.snapshot()

    # The program around it.

    def _build(self, env: StreamExecutionEnvironment, apply: Apply) -> DataStream:
        streams = [env.from_source(source).set_parallelism(1) for source in self._sources]
        found = apply(*streams)
        if not isinstance(found, DataStream):
            raise HarnessMisused(
                f"the harness was given a function that returns {type(found).__name__}; return the "
                f"stream that the operator returns"
            )
        if len(found._origins) == 1 and found._origins[0].is_plain:
            found.name(NAME)
            self._name = NAME
        return found.process(_WithTime()).name("timestamps")

    def _source(self, number: int) -> ManualSource:
        if not 1 <= number <= len(self._sources):
            raise HarnessMisused(
                f"there is no input {number}; this operator has {len(self._sources)}"
            )
        self._run.check_alive()
        return self._sources[number - 1]

    @contextmanager
    def _users_errors(self) -> Iterator[None]:
        """The function's own exceptions come as they are."""
        try:
            yield
        except JobFailed as error:
            failure = error.__cause__
            if failure is None or isinstance(failure, HeadgateError):
                raise
            failure.__suppress_context__ = True
            raise failure  # noqa: B904 - it has its own traceback and causes


class FunctionHarness(OperatorHarness):
    """Around one function: what it is decides which operator runs it.

    ::

        harness = FunctionHarness(CountClicks(), key_selector=lambda click: click["user"])
        harness.send({"user": "a"}, timestamp=10)
        assert harness.output == [("a", 1)]
        assert harness.state(CLICKS, key="a") == 1
        snapshot = harness.snapshot()
        again = FunctionHarness.restore(snapshot, CountClicks(), key_selector=..., parallelism=3)

    A plain callable needs ``operation``: map, flat_map, filter, reduce or process. Window functions
    need a ``window``, an assigner. A function of two inputs takes ``send(value, input=2)``; the
    second input of a broadcast function is the broadcast one, and ``broadcast`` its descriptors.
    """

    def __init__(
        self,
        function: Any,
        key_selector: KeyOf | None = None,
        second_key_selector: KeyOf | None = None,
        *,
        operation: str | None = None,
        window: Any = None,
        broadcast: Sequence[MapStateDescriptor] = (),
        parallelism: int = 1,
        start_ms: int = 0,
        _restore: ProgramSnapshot | None = None,
    ) -> None:
        plan = _Operation(function, key_selector, second_key_selector or key_selector)
        inputs, apply = plan.of(operation, window, tuple(broadcast))
        super().__init__(
            apply, inputs=inputs, parallelism=parallelism, start_ms=start_ms, restore=_restore
        )

    @classmethod
    def restore(
        cls, snapshot: ProgramSnapshot, function: Any, *args: Any, **named: Any
    ) -> "FunctionHarness":
        """A harness that begins with a snapshot; the rest as for a new one.

        The parallelism may be another one: the keys are shared out among the tasks anew.
        """
        if not isinstance(snapshot, ProgramSnapshot):
            raise HarnessMisused(f"restore() was given {snapshot!r}; give what snapshot() returned")
        return cls(function, *args, **named, _restore=snapshot)


class _Operation:
    """Which operator runs a function."""

    def __init__(self, function: Any, key_of: KeyOf | None, second_key_of: KeyOf | None) -> None:
        self._function = function
        self._key_of = key_of
        self._second_key_of = second_key_of

    def of(
        self, operation: str | None, window: Any, broadcast: tuple[MapStateDescriptor, ...]
    ) -> tuple[int, Apply]:
        """The number of its inputs, and what applies it to them."""
        function = self._function
        if isinstance(function, BroadcastProcessFunction | KeyedBroadcastProcessFunction):
            return 2, lambda first, second: self._broadcast(first, second, broadcast)
        if isinstance(function, CoMapFunction | CoFlatMapFunction | CoProcessFunction):
            return 2, lambda first, second: self._connected(first, second)
        if isinstance(function, KeyedCoProcessFunction):
            return 2, lambda first, second: self._connected(first, second)
        if isinstance(function, AsyncFunction):
            return 1, lambda stream: AsyncDataStream.ordered_wait(
                stream, function, Time.seconds(60)
            )
        if window is not None:
            return 1, lambda stream: self._windowed(stream, window)
        name = operation or self._name()
        if name == "reduce":
            return 1, lambda stream: stream.key_by(self._key("reduce")).reduce(function)
        return 1, lambda stream: getattr(self._keyed(stream), name)(function)

    def _name(self) -> str:
        function = self._function
        kinds: tuple[tuple[type, str], ...] = (
            (KeyedProcessFunction, "process"),
            (ProcessFunction, "process"),
            (FlatMapFunction, "flat_map"),
            (MapFunction, "map"),
            (FilterFunction, "filter"),
            (ReduceFunction, "reduce"),
        )
        for kind, name in kinds:
            if isinstance(function, kind):
                return name
        if isinstance(function, ProcessWindowFunction | WindowFunction | AggregateFunction):
            raise HarnessMisused(
                f"{type(function).__name__} is a function of windows; give the harness a window"
            )
        raise HarnessMisused(
            f"the harness does not know what to do with a {type(function).__name__}; say "
            f"operation='map', 'flat_map', 'filter', 'reduce' or 'process'"
        )

    def _keyed(self, stream: DataStream) -> Any:
        if isinstance(self._function, KeyedProcessFunction) or self._key_of is not None:
            return stream.key_by(self._key(type(self._function).__name__))
        return stream

    def _key(self, who: str) -> KeyOf:
        if self._key_of is None:
            raise HarnessMisused(f"{who} works on a keyed stream; give the harness a key_selector")
        return self._key_of

    def _windowed(self, stream: DataStream, window: Any) -> DataStream:
        windowed = stream.key_by(self._key("a window")).window(window)
        function = self._function
        if isinstance(function, AggregateFunction):
            return windowed.aggregate(function)
        if isinstance(function, ProcessWindowFunction):
            return windowed.process(function)
        if isinstance(function, WindowFunction):
            return windowed.apply(function)
        return windowed.reduce(function)

    def _connected(self, first: DataStream, second: DataStream) -> DataStream:
        function: Any = self._function
        connected: Any = first.connect(second)
        if isinstance(function, KeyedCoProcessFunction) or self._key_of is not None:
            who = type(function).__name__
            connected = connected.key_by(self._key(who), self._second_key_of)
        if isinstance(function, CoMapFunction):
            return connected.map(function)  # type: ignore[no-any-return]
        if isinstance(function, CoFlatMapFunction):
            return connected.flat_map(function)  # type: ignore[no-any-return]
        return connected.process(function)  # type: ignore[no-any-return]

    def _broadcast(
        self, first: DataStream, second: DataStream, descriptors: tuple[MapStateDescriptor, ...]
    ) -> DataStream:
        if not descriptors:
            raise HarnessMisused(
                "a broadcast function needs the descriptors of its broadcast state; give "
                "broadcast=[MapStateDescriptor(...)]"
            )
        stream: Any = first
        if isinstance(self._function, KeyedBroadcastProcessFunction):
            stream = first.key_by(self._key(type(self._function).__name__))
        return stream.connect(second.broadcast(*descriptors)).process(  # type: ignore[no-any-return]
            self._function
        )


class _WithTime(ProcessFunction[Any, Any]):
    """Puts each record beside its timestamp."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield value, ctx.timestamp()


@dataclass(slots=True)
class SideOutputs:
    """Records that one operator has emitted to side outputs, in all its tasks."""

    operator: str
    """Its name."""
    records: dict[str, list[Record]] = field(default_factory=dict)
    """By the ids of the tags."""

    def wrap(self, vertices: Mapping[int, JobVertex]) -> Mapping[int, JobVertex]:
        """The vertices with an operator that keeps what it emits to side outputs."""
        return {number: self._watched(vertex) for number, vertex in vertices.items()}

    def _watched(self, vertex: JobVertex) -> JobVertex:
        operators = tuple(
            replace(spec, make=_Tapped(self, spec)) if spec.name == self.operator else spec
            for spec in vertex.chain.operators
        )
        return replace(vertex, chain=replace(vertex.chain, operators=operators))


class _Tapped:
    def __init__(self, sides: SideOutputs, spec: OperatorSpec) -> None:
        self._sides = sides
        self._make = spec.make

    def __call__(self) -> Operator:
        operator = self._make()
        set_up, records = operator.set_up, self._sides.records
        operator.set_up = (  # type: ignore[method-assign]
            lambda output: set_up(SideTap(output, records))
        )
        return operator


class SideTap:
    """An ``Output`` that keeps what is emitted to side outputs."""

    def __init__(self, inner: Output, records: dict[str, list[Any]]) -> None:
        self._inner = inner
        self._records = records
        self.collect = inner.collect
        self.emit_watermark = inner.emit_watermark
        self.emit_status = inner.emit_status
        self.emit_marker = inner.emit_marker

    @property
    def watermark_ms(self) -> int:
        return self._inner.watermark_ms

    @watermark_ms.setter
    def watermark_ms(self, watermark_ms: int) -> None:
        self._inner.watermark_ms = watermark_ms

    def collect_side(self, tag: str, bundle: Bundle) -> None:
        self._records.setdefault(tag, []).extend(own(record) for record in bundle.records)
        self._inner.collect_side(tag, bundle)
