"""DataStream: records on their way, and the operators that can be applied to them.

A stream knows where its records come from (its origins) and their type. Each method that takes a
function adds a transformation to the draft and returns its output stream; nothing runs before the
environment executes.
"""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeGuard, overload

from headgate.api.checks import (
    check_function,
    check_object,
    check_type,
    key_function,
    partition_function,
    refuse_other_kinds,
)
from headgate.api.draft import (
    Draft,
    Factory,
    Origin,
    Transformation,
    Translate,
    TranslationContext,
    fixed,
    unexecuted,
)
from headgate.api.operator_settings import OperatorSettings
from headgate.api.program import (
    build_program,
    mode_for_a_table,
    plan_picture,
    refuse_endless,
)
from headgate.api.runtime import runtime
from headgate.api.settings.configuration import ExecutionConfig
from headgate.api.sinks import CloseableIterator, DataStreamSink, sink_operator
from headgate.api.types.types import TupleTypeInfo, TypeInformation, Types
from headgate.base.elements import Record
from headgate.base.errors import PlanInvalid
from headgate.core.chain.operator import Operator
from headgate.core.chain.watermarks import time_plan
from headgate.core.operators.one_input import (
    FilterOperator,
    FlatMapOperator,
    MapOperator,
    ProcessOperator,
)
from headgate.core.operators.sinks import SinkFunctionOperator, SinkOperator
from headgate.core.operators.timestamps import TimedOperator, TimestampsOperator
from headgate.functions.assigners import count_assigner
from headgate.functions.function import (
    FilterFunction,
    FlatMapFunction,
    FlatMaps,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    OutputTag,
    Partitioner,
    ProcessFunction,
    SinkFunction,
)
from headgate.functions.sink import Sink
from headgate.functions.state import MapStateDescriptor
from headgate.functions.type_variables import T, V, W
from headgate.functions.watermarks import WatermarkStrategy, check_strategy
from headgate.plan import ship_strategies
from headgate.plan.stream_graph import NodeKind, ShipStrategy


class BroadcastStream(Generic[T]):
    """Made by ``broadcast(descriptor)``; give it to ``connect`` of another stream.

    ::

        rules = rule_stream.broadcast(MapStateDescriptor("rules", Types.STRING(), Types.INT()))
        payments.connect(rules).process(CheckRules())
    """

    def __init__(
        self, input_stream: "DataStream[T]", descriptors: tuple[MapStateDescriptor, ...]
    ) -> None:
        for descriptor in descriptors:
            if not isinstance(descriptor, MapStateDescriptor):
                raise PlanInvalid(
                    f"broadcast() was given {descriptor!r}; give a MapStateDescriptor for each "
                    f"broadcast state, or nothing to send every record to every task"
                )
        self.input_stream = input_stream
        self.broadcast_state_descriptors = list(descriptors)


if TYPE_CHECKING:
    from headgate.api.cached import CachedDataStream
    from headgate.api.columns import ColumnStream
    from headgate.api.connected import BroadcastConnectedStream, ConnectedStreams
    from headgate.api.environment import StreamExecutionEnvironment
    from headgate.api.joined import CoGroupedStreams, JoinedStreams
    from headgate.api.keyed import KeyedStream
    from headgate.api.windowed import AllWindowedStream
    from headgate.functions.assigners import WindowAssigner
    from headgate.functions.window import CountWindow


class DataStream(OperatorSettings, Generic[T]):
    """A stream of records; made by an environment and by the methods of other streams."""

    def __init__(
        self, draft: Draft, origins: Iterable[Origin], type_info: TypeInformation | None = None
    ) -> None:
        self._draft = draft
        self._origins = tuple(origins)
        self._type = type_info

    @overload
    def map(
        self, func: Callable[[T], V] | MapFunction[T, V], output_type: None = None
    ) -> "DataStream[V]": ...

    @overload
    def map(
        self, func: Callable[[T], object] | MapFunction[T, object], output_type: TypeInformation[V]
    ) -> "DataStream[V]": ...

    def map(self, func: Any, output_type: TypeInformation | None = None) -> "DataStream":
        """One record out for each record in: ``stream.map(lambda x: x + 1)``.

        On a keyed stream a MapFunction may have keyed state, which it asks for in ``open``.
        """
        check_function(func, "map", MapFunction)
        return self._each("Map", MapOperator, "map", func, output_type)

    @overload
    def flat_map(
        self,
        func: Callable[[T], Iterable[V]] | FlatMaps[T, V],
        output_type: None = None,
    ) -> "DataStream[V]": ...

    @overload
    def flat_map(
        self,
        func: Callable[[T], Iterable[object]] | FlatMaps[T, object],
        output_type: TypeInformation[V],
    ) -> "DataStream[V]": ...

    def flat_map(self, func: Any, output_type: TypeInformation | None = None) -> "DataStream":
        """Any number of records out for each record in: ``lines.flat_map(str.split)``."""
        check_function(func, "flat_map", FlatMapFunction)
        return self._each("Flat Map", FlatMapOperator, "flat_map", func, output_type)

    @overload
    def filter(self, func: Callable[[T], TypeGuard[V]]) -> "DataStream[V]": ...

    @overload
    def filter(self, func: Callable[[T], object] | FilterFunction[T]) -> "DataStream[T]": ...

    def filter(self, func: Any) -> "DataStream":
        """The records for which the function returns true: ``stream.filter(lambda x: x > 0)``."""
        check_function(func, "filter", FilterFunction)
        stream = self._each("Filter", FilterOperator, "filter", func, self._type)
        stream._origins[0].transformation.passes_on = True
        return stream

    def project(self, *field_indexes: int) -> "DataStream[tuple[Any, ...]]":
        """Some fields of each record, as a tuple: ``stream.project(2, 0)``."""
        if not field_indexes or not all(type(index) is int for index in field_indexes):
            raise PlanInvalid(
                f"project() was given {field_indexes!r}; give positions of fields, from 0"
            )
        fields = Fields(field_indexes)
        output_type = None
        if isinstance(self._type, TupleTypeInfo):
            output_type = TupleTypeInfo(fields(self._type.field_types))
        return self._transform(
            "Projection", partial(MapOperator, fields), "fields", fields, output_type
        )

    def process(
        self, func: ProcessFunction[T, V], output_type: TypeInformation | None = None
    ) -> "DataStream[V]":
        """Call ``process_element(value, ctx)`` for each record; it may use side outputs."""
        check_object(func, "process", ("process_element",), ProcessFunction)
        if isinstance(func, KeyedProcessFunction):
            raise PlanInvalid(
                f"process() was given {type(func).__name__}, a KeyedProcessFunction, on a stream "
                f"without keys; call key_by() before, or make it a ProcessFunction"
            )
        refuse_other_kinds(func, "process", (ProcessFunction,))
        factory = partial(ProcessOperator, func)
        return self._transform("Process", factory, "process function", func, output_type)

    def assign_timestamps_and_watermarks(
        self, watermark_strategy: WatermarkStrategy
    ) -> "DataStream[T]":
        """Give records their event time; watermarks from further up are not passed on."""
        strategy = check_strategy(watermark_strategy, "assign_timestamps_and_watermarks")
        if strategy.aligns:
            raise PlanInvalid(
                "assign_timestamps_and_watermarks() was given a strategy with watermark "
                "alignment, which holds back sources; give that strategy to from_source()"
            )

        def translate(context: TranslationContext) -> Factory:
            if context.strategy is not None:
                return TimedOperator
            interval_ms = self._draft.settings.watermark_interval_ms
            return partial(TimestampsOperator, time_plan(strategy, interval_ms, context.batch))

        name, role = "Timestamps/Watermarks", "watermark strategy"
        stream = self._transform_with(name, translate, role, strategy, self._type)
        stream._origins[0].transformation.assigns_times = strategy.assigns_times
        stream._origins[0].transformation.passes_on = True
        return stream

    def key_by(
        self,
        key_selector: Callable[[T], V] | KeySelector[T, V],
        key_type: TypeInformation | None = None,
    ) -> "KeyedStream[T, V]":
        """Records with equal keys to the same task: ``stream.key_by(lambda record: record[0])``."""
        key_of = key_function(key_selector, "key_by")
        from headgate.api.keyed import KeyedStream

        return KeyedStream(self, key_of, check_type(key_type, "key_by"))

    def union(self, *streams: "DataStream[V]") -> "DataStream[T | V]":
        """The records of all these streams, in no given order between them."""
        origins, output_type = list(self._read()), self._type
        for stream in streams:
            self._check_neighbour(stream, "union")
            types = (self._type, stream._type)
            if None not in types and types[0] != types[1]:
                raise PlanInvalid(
                    f"union() of a stream of {types[0]!r} and one of {types[1]!r}; "
                    f"map one of them to the type of the other, or use connect()"
                )
            origins += stream._read()
            output_type = None if stream._type is None else output_type
        return DataStream(self._draft, origins, output_type)

    @overload
    def connect(self, ds: "DataStream[V]") -> "ConnectedStreams[T, V]": ...

    @overload
    def connect(self, ds: BroadcastStream[V]) -> "BroadcastConnectedStream[T, V]": ...

    def connect(
        self, ds: "DataStream | BroadcastStream"
    ) -> "ConnectedStreams | BroadcastConnectedStream":
        """Both streams, each with its own type, for a function with a method for each."""
        if isinstance(ds, BroadcastStream):
            self._check_neighbour(ds.input_stream, "connect")
            from headgate.api.connected import BroadcastConnectedStream

            return BroadcastConnectedStream(self, ds)
        self._check_neighbour(ds, "connect")
        from headgate.api.connected import ConnectedStreams

        return ConnectedStreams(self, ds)

    def window_all(self, window_assigner: "WindowAssigner[T, W]") -> "AllWindowedStream[T, W]":
        """All records that belong together in time, whatever their key: in one task."""
        from headgate.api.windowed import AllWindowedStream

        return AllWindowedStream(self, window_assigner)

    def count_window_all(
        self, size: int, slide: int | None = None
    ) -> "AllWindowedStream[T, CountWindow]":
        """Each ``size`` records, beginning every ``slide``; only full windows fire."""
        return self.window_all(count_assigner(size, slide))

    def join(self, other_stream: "DataStream[V]") -> "JoinedStreams[T, V]":
        """Pairs of records of both streams that have the same key and the same window.

        ::

            clicks.join(orders).where(user_of).equal_to(user_of).window(windows).apply(function)
        """
        self._check_neighbour(other_stream, "join")
        from headgate.api.joined import JoinedStreams

        return JoinedStreams(self, other_stream)

    def co_group(self, other_stream: "DataStream[V]") -> "CoGroupedStreams[T, V]":
        """All records of both streams that have the same key and the same window, in two lists."""
        self._check_neighbour(other_stream, "co_group")
        from headgate.api.joined import CoGroupedStreams

        return CoGroupedStreams(self, other_stream)

    def split(self, selector: "Callable[[T], list[str]]") -> "SplitStream[T]":
        """Name the outputs for each record; ``select`` then takes those with a name.

        ::

            halves = numbers.split(lambda n: ["even"] if n % 2 == 0 else ["odd"])
            halves.select("even").print()
        """
        if not callable(selector):
            raise PlanInvalid(
                f"split() was given {selector!r}; give a callable that returns a list of names"
            )
        origins = self._read()
        origin = origins[0]
        if len(origins) > 1 or not origin.is_plain or origin.transformation.selectors:
            # Names belong to an operator; this one is only there to own them.
            factory = partial(MapOperator, same)
            stream = self._transform("Split", factory, "map function", same, self._type)
            origin = stream._origins[0]
            origin.transformation.passes_on = True
        origin.transformation.selectors = (selector,)
        return SplitStream(self._draft, origin, self._type)

    def get_side_output(self, output_tag: OutputTag[V]) -> "DataStream[V]":
        """The records that the operator yields as ``(output_tag, record)``."""
        if not isinstance(output_tag, OutputTag):
            raise PlanInvalid(
                f"get_side_output() was given {output_tag!r}; give the OutputTag of the function"
            )
        transformation = self._transformation("get_side_output")
        output_type = check_type(output_tag.type_info, "get_side_output")
        known = transformation.side_types.get(output_tag.tag_id)
        if known is not None and output_type not in (None, known):
            raise PlanInvalid(
                f"get_side_output() was given {output_tag!r} of {output_type!r}, which was read as "
                f"{known!r} before; give both the same type, or use another id",
                transformation.name,
            )
        if output_type is not None:
            transformation.side_types[output_tag.tag_id] = output_type
        return DataStream(self._draft, [Origin(transformation, tag=output_tag.tag_id)], output_type)

    def cache(self) -> "CachedDataStream[T]":
        """Compute the records once and keep them in the driver for all jobs that follow.

        ::

            parsed = env.from_source(logs, None, "logs").map(parse).cache()
            parsed.filter(is_error).print()
            env.execute()  # reads the logs, once
            print(list(parsed.execute_and_collect()))  # does not
        """
        from headgate.api.cached import CachedDataStream

        return CachedDataStream(self)

    def rebalance(self) -> "DataStream[T]":
        """Records to all tasks of the next operator in turn."""
        return self._shipped(ship_strategies.rebalance())

    def rescale(self) -> "DataStream[T]":
        """In turn, but each task only to its own share of the next operator's tasks."""
        return self._shipped(ship_strategies.rescale())

    def shuffle(self) -> "DataStream[T]":
        """Each record to any task, by chance."""
        return self._shipped(ship_strategies.shuffle())

    def forward(self) -> "DataStream[T]":
        """Each task to the one with the same number; both operators need the same parallelism."""
        return self._shipped(ship_strategies.forward())

    @overload
    def broadcast(self) -> "DataStream[T]": ...

    @overload
    def broadcast(
        self, broadcast_state_descriptor: MapStateDescriptor, *others: MapStateDescriptor
    ) -> BroadcastStream[T]: ...

    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor | None = None,
        *others: MapStateDescriptor,
    ) -> "DataStream[T] | BroadcastStream[T]":
        """Every record to every task; with descriptors, to be remembered there (``connect``)."""
        stream = self._shipped(ship_strategies.broadcast())
        if broadcast_state_descriptor is None:
            return stream
        return BroadcastStream(stream, (broadcast_state_descriptor, *others))

    def global_(self) -> "DataStream[T]":
        """Everything to the first task."""
        return self._shipped(ship_strategies.global_())

    def partition_custom(
        self,
        partitioner: Callable[[V, int], int] | Partitioner[V],
        key_selector: Callable[[T], V] | KeySelector[T, V],
    ) -> "DataStream[T]":
        """The partitioner says which task gets the records of a key.

        ::

            stream.partition_custom(lambda key, tasks: key % tasks, lambda record: record[0])
        """
        key_of = key_function(key_selector, "partition_custom")
        return self._shipped(ship_strategies.custom(partition_function(partitioner), key_of))

    def add_sink(self, sink_func: SinkFunction[T] | Callable[[T], object]) -> DataStreamSink:
        """Call ``invoke(value, context)`` for each record; a plain callable gets the value.

        ::

            stream.add_sink(lambda value: requests.post(url, json=value))
        """
        check_function(sink_func, "invoke", SinkFunction, "add_sink")
        name = getattr(sink_func, "__name__", type(sink_func).__name__)
        factory = partial(SinkFunctionOperator, sink_func)
        name = "function" if name == "<lambda>" else name
        return self._sink(self._end(name, factory, "sink function", sink_func))

    def sink_to(self, sink: Sink[T]) -> DataStreamSink:
        """Write all records to a sink: ``stream.sink_to(TextFileSink("out"))``."""
        check_object(sink, "sink_to", ("create_writer",), Sink)
        for_type = getattr(sink, "for_type", None)
        if for_type is not None:
            sink = for_type(self._type)
        name = str(getattr(sink, "default_name", type(sink).__name__))
        return self._sink(self._end(name, sink_operator(sink), "sink", sink))

    def _sink(self, transformation: Transformation) -> DataStreamSink:
        end = DataStream(self._draft, [Origin(transformation)])
        return DataStreamSink(transformation, end.get_side_output)

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Print each record; with several tasks after the number of its task: ``2> hello``."""
        sink = runtime().print_sink(sink_identifier)
        return self.sink_to(sink).name("Print to Std. Out")

    @overload
    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: None = None
    ) -> CloseableIterator[T]: ...

    @overload
    def execute_and_collect(self, job_execution_name: str | None, limit: int) -> list[T]: ...

    @overload
    def execute_and_collect(
        self, job_execution_name: str | None = None, *, limit: int
    ) -> list[T]: ...

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator[T] | list[T]:
        """Run the program and bring the records of this stream here, in order of arrival.

        With ``limit`` a list of at most so many; then the job is cancelled.

        ::

            with env.from_collection([1, 2]).map(lambda x: x + 1).execute_and_collect() as found:
                print(list(found))
        """
        if limit is not None and (type(limit) is not int or limit < 1):
            raise PlanInvalid(
                f"execute_and_collect(): the limit is {limit!r}; give a whole number above 0"
            )
        sink = runtime().collect_sink()
        transformation = self._end("Collect Stream Sink", sink_operator(sink), "sink", sink)
        transformation.parallelism = transformation.max_parallelism = 1
        transformation.uid = "collect"
        draft = self._draft
        try:
            program = build_program(draft, job_execution_name, draft.pending)
            results = runtime().collect(program, transformation.id)
        finally:
            draft.forget()
        unexecuted.has_executed = True
        found: CloseableIterator[T] = CloseableIterator(results)
        if limit is None:
            return found
        with found:
            return list(islice(found, limit))

    def to_dataframe(self, schema: object, job_name: str | None = None) -> Any:
        """The records as a lazy Spark DataFrame; an action on it runs what leads to this stream.

        ``schema`` is what Spark takes, for instance ``"word string, count long"``. A record is a
        Row, tuple, list or dict with a value for each column, or the value of a single column.
        Results by key are final, one for each key as in batch mode, unless the program sets its
        ``execution.runtime-mode``.
        Each action runs the program again: ``cache()`` the result if there will be several. An
        action on it, or on what is derived from it, raises JobFailed if the program fails; one that
        wants a few rows, such as ``show`` or ``limit(5)``, ends it when these are there.
        """
        return self._to_dataframe(schema, job_name)

    def _to_dataframe(self, schema: object, job_name: str | None, as_batches: bool = False) -> Any:
        sink = runtime().dataframe_sink(schema, as_batches)
        transformation = self._draft.new_transformation(
            "DataFrame",
            NodeKind.SINK,
            fixed(partial(SinkOperator, sink)),
            (self._read(),),
            (("sink", sink),),
        )
        transformation.parallelism = self._origins[0].transformation.parallelism
        transformation.uid = "dataframe"
        refuse_endless([transformation], "to_dataframe")
        mode = mode_for_a_table([transformation])
        program = build_program(self._draft, job_name, [transformation], mode)
        frame = runtime().to_dataframe(program, transformation.id, schema)
        unexecuted.has_executed = True
        return frame

    def columns(self, schema: object = None) -> "ColumnStream":
        """For records that are Arrow batches: operators on whole columns, checked by a schema."""
        from headgate.api.columns import columns_of

        return columns_of(self, schema)

    def to_arrow(self, schema: object, rows: int = 10_000) -> "ColumnStream":
        """Collect records, as ``to_dataframe`` takes them, into Arrow batches of so many rows.

        They leave earlier before watermarks and checkpoints, and after the buffer timeout.
        """
        from headgate.api.columns import batched

        return batched(self, schema, rows)

    def to_streaming_dataframe(self, schema: object, name: str = "dataframe") -> Any:
        """The records as a streaming DataFrame of Spark, exactly once; for schemas see above.

        Start a query on it before or after the job; it gets rows with each checkpoint of the job.
        One query reads it at a time. It fails if the job does, when it has read all.
        """
        configuration = self._draft.configuration.to_dict()
        sink, frame = runtime().streaming_frame(schema, name, configuration)
        self.sink_to(sink)
        return frame

    def get_type(self) -> TypeInformation:
        """The declared type; that of any Python object if none was declared."""
        return self._type or Types.PICKLED_BYTE_ARRAY()

    def get_execution_environment(self) -> "StreamExecutionEnvironment":
        return self._draft.environment

    def get_execution_config(self) -> ExecutionConfig:
        return self._draft.config

    def _repr_svg_(self) -> str | None:
        """The plan that leads to this stream, its operator marked, for notebooks."""
        origins = [origin.transformation for origin in self._origins]
        return plan_picture(self._draft, origins, marked=[origin.id for origin in origins])

    def _each(
        self,
        name: str,
        operator: Callable[..., Operator],
        method: str,
        function: object,
        output_type: TypeInformation | None,
    ) -> "DataStream":
        """The output of an operator that calls this method of a function for each record."""
        role = f"{name.lower()} function"
        return self._transform(name, partial(operator, function), role, function, output_type)

    def _transform(
        self,
        name: str,
        factory: Factory,
        role: str,
        function: object,
        output_type: TypeInformation | None = None,
    ) -> "DataStream":
        """The output of a new operator that depends on no setting."""
        return self._transform_with(name, fixed(factory), role, function, output_type)

    def _transform_with(
        self,
        name: str,
        translate: Translate,
        role: str,
        function: object,
        output_type: TypeInformation | None,
        *others: "DataStream",
    ) -> "DataStream":
        """The output of a new operator that reads this stream and perhaps others."""
        output_type = check_type(output_type, name)
        inputs = (self._read(), *(stream._read() for stream in others))
        functions = ((role, function),)
        transformation = self._draft.add(name, NodeKind.OPERATOR, translate, inputs, functions)
        transformation.output_type = output_type
        return DataStream(self._draft, [Origin(transformation)], output_type)

    def _end(self, name: str, factory: Factory, role: str, function: object) -> Transformation:
        return self._draft.add(
            name, NodeKind.SINK, fixed(factory), (self._read(),), ((role, function),)
        )

    def _read(self) -> tuple[Origin, ...]:
        """The origins that an operator on this stream reads."""
        return self._origins

    def _shipped(self, ship: ShipStrategy) -> "DataStream[T]":
        origins = [origin.shipped(ship) for origin in self._read()]
        return DataStream(self._draft, origins, self._type)

    def _transformation(self, caller: str) -> Transformation:
        if len(self._origins) == 1 and self._origins[0].is_plain:
            return self._origins[0].transformation
        raise PlanInvalid(
            f"{caller}() belongs to an operator, and this stream is a union, a side output, a "
            f"selection or on its way to the next operator; call it right after the operator"
        )

    def _check_neighbour(self, stream: object, caller: str) -> None:
        if not isinstance(stream, DataStream):
            raise PlanInvalid(f"{caller}() was given {stream!r}; give another DataStream")
        if stream._draft is not self._draft:
            raise PlanInvalid(
                f"{caller}() of streams of two environments; make both from the same one"
            )


class SplitStream(Generic[T]):
    """A stream whose records have been given names."""

    def __init__(self, draft: Draft, origin: Origin, type_info: TypeInformation | None) -> None:
        self._draft = draft
        self._origin = origin
        self._type = type_info

    def select(self, *output_names: str) -> DataStream[T]:
        """The records that have one of these names."""
        if not output_names or not all(isinstance(name, str) for name in output_names):
            raise PlanInvalid(
                f"select() was given {output_names!r}; give names that the selector returns"
            )
        origin = Origin(self._origin.transformation, selected=frozenset(output_names))
        return DataStream(self._draft, [origin], self._type)


class Fields:
    """Takes fields of a record by position."""

    def __init__(self, indexes: tuple[int, ...]) -> None:
        self._indexes = indexes

    def __call__(self, record: Record) -> tuple[Record, ...]:
        return tuple([record[index] for index in self._indexes])


def same(record: Record) -> Record:
    """The record itself."""
    return record
