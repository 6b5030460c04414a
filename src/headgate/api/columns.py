"""Column streams: Arrow batches on their way, and operators that work on whole columns.

A stream that is fed by a DataFrame, by Parquet or by Arrow tables stays columnar until records are
asked for. The same rows, keys, windows and checkpoints as for records; a Python step for each batch
instead of each row. Law: where the schema is known, a column that is not there is refused when the
program is written.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import compute

from headgate.api.datastream import DataStream
from headgate.api.draft import Factory, Transformation, TranslationContext
from headgate.api.operator_settings import OperatorSettings
from headgate.api.row import Row
from headgate.api.runtime import runtime
from headgate.api.sinks import CloseableIterator, DataStreamSink
from headgate.api.types.types import TypeInformation, Types
from headgate.api.types.wires import Coercer
from headgate.base.checkpoints import TypeShape
from headgate.base.elements import Record, Serializer
from headgate.base.errors import BatchUnfit, PlanInvalid
from headgate.base.settings import ExchangeSettings
from headgate.core.chain.operator import Operator
from headgate.core.columns.aggregates import (
    KINDS,
    ColumnAggregate,
    PartialAggregation,
    PartialRecords,
    result_type,
)
from headgate.core.columns.batches import (
    BatchSerializer,
    SchemaCheck,
    batch_in,
    check_names,
    listed,
)
from headgate.core.columns.functions import FORMS, BatchFunction, Projection, RowFilter, form_of
from headgate.core.columns.joined_columns import BOUND, WINDOW_END, WINDOW_START
from headgate.core.columns.keys import is_key_type
from headgate.core.columns.operators import (
    BatchesOperator,
    MergedPartialsOperator,
    PartialsOperator,
    RecordsOperator,
    ResultBatches,
)
from headgate.core.columns.times import BatchTimes, EventTime, times_ms
from headgate.core.operators.one_input import ProcessOperator
from headgate.core.operators.reduce import ReduceOperator
from headgate.functions.assigners import (
    WindowAssigner,
)
from headgate.functions.function import OutputTag
from headgate.functions.sink import Sink
from headgate.functions.watermarks import WatermarkStrategy, check_strategy
from headgate.plan import ship_strategies

if TYPE_CHECKING:
    from headgate.api.column_windows import JoinedColumnStreams, WindowedColumnStream
    from headgate.api.keyed import KeyedStream


@dataclass(frozen=True, slots=True)
class BatchTypeInfo(TypeInformation):
    """Arrow record batches; if they are checked, of one schema: this, or that of the first."""

    schema: pa.Schema | None = None
    is_checked: bool = False

    def coercer(self) -> Coercer:
        if not self.is_checked:
            return _as_they_are
        check = SchemaCheck(self.schema)
        return lambda records: [check.fit(batch_in(record), "it gave") for record in records]

    def serializer(self) -> Serializer | None:
        return BatchSerializer()

    def shape(self) -> TypeShape:
        return TypeShape("ARROW_BATCH")

    @property
    def is_immutable(self) -> bool:
        return True

    @property
    def takes_anything(self) -> bool:
        return not self.is_checked

    @property
    def passes_none(self) -> bool:
        return False  # nobody after it can read one

    def __repr__(self) -> str:
        return "Arrow batches"


def _as_they_are(records: list[Record]) -> list[Record]:
    return records


BATCHES: Final = BatchTypeInfo()

AggregateArgument = str | tuple[str, str]
"""``("amount", "sum")``, or ``"count"``, which counts rows."""


class ColumnStream(OperatorSettings):
    """A stream of Arrow batches; made by ``columns()`` and ``to_arrow()`` of other streams."""

    def __init__(
        self,
        stream: DataStream,
        schema: pa.Schema | None,
        time: EventTime | None = None,
        late: "Mapping[str, tuple[pa.Schema | None, EventTime | None]] | None" = None,
    ) -> None:
        """``schema``: None if it is not known before the job runs.

        ``late``: columns and event time of the side outputs for late rows, by ids of tags.
        """
        self.schema = schema
        self._stream = stream
        self._time = time
        self._late = dict(late or {})

    def map_batches(
        self,
        func: Any,
        schema: object = None,
        form: str | None = None,
    ) -> "ColumnStream":
        """Call a function with each batch; it returns a table, several, or None.

        It gets what its first argument is annotated with, or ``form`` says: a ``RecordBatch`` of
        pyarrow (``"batch"``, the default), a ``Table`` (``"table"``), or a DataFrame of
        ``"pandas"`` or ``"polars"``. ``schema``: of the result; None: the same columns as before.
        What it yields as ``(output_tag, table)`` goes to a side output.

        ::

            def double(frame: pandas.DataFrame) -> pandas.DataFrame:
                return frame.assign(amount=frame.amount * 2)

            payments.map_batches(double)
        """
        return self._mapped(func, schema, form)

    def _mapped(
        self, func: Any, schema: object, form: str | None, keys: tuple[str, ...] = ()
    ) -> "ColumnStream":
        if not callable(func) or isinstance(func, type):
            raise PlanInvalid(f"map_batches() was given {func!r}; give a function of a table")
        if form is not None and form not in FORMS:
            raise PlanInvalid(f"map_batches() was given form={form!r}; give one of {list(FORMS)}")
        wanted = self.schema if schema is None else runtime().arrow_schema(schema, "map_batches")
        wants: Any = form or form_of(func)
        function = BatchFunction(func, wants, wanted, keys)
        return self._processed("Map Batches", function, func, wanted)

    def filter(self, condition: compute.Expression) -> "ColumnStream":
        """The rows for which an expression is true: ``filter(col("amount") > 10)``."""
        _check_expression(condition, "filter")
        found = self._evaluated({"condition": condition}, "filter")
        if found is not None and not pa.types.is_boolean(found.field(0).type):
            raise PlanInvalid(
                f"filter() was given an expression that is a {found.field(0).type}; give one that "
                f"is true or false, such as col('amount') > 10"
            )
        return self._processed("Filter", RowFilter(condition), condition, self.schema)

    def select(self, *names: str, **expressions: Any) -> "ColumnStream":
        """Some columns, and new ones: ``select("user", cents=col("amount") * 100)``."""
        if twice := [name for name in expressions if name in names]:
            raise PlanInvalid(f"select() was given {twice[0]!r} twice; name it once")
        columns: dict[str, Any] = dict.fromkeys(self._known(names, "select"))
        columns.update({name: _expression(each, name) for name, each in expressions.items()})
        if not columns:
            raise PlanInvalid("select() was given no column; name at least one")
        return self._projected("Select", columns, "select")

    def with_column(self, name: str, expression: Any) -> "ColumnStream":
        """All columns and another one, or one in the place of that with this name."""
        if self.schema is None:
            raise PlanInvalid(
                "with_column() has to know the columns that are there, and this stream has no "
                "schema; give columns(schema) or map_batches(…, schema=…) one, or use select()"
            )
        columns: dict[str, Any] = dict.fromkeys(self.schema.names)
        columns[name] = _expression(expression, name)
        return self._projected("With Column", columns, "with_column")

    def assign_timestamps_and_watermarks(
        self, watermark_strategy: WatermarkStrategy, column: str
    ) -> "ColumnStream":
        """Event time from a column: a timestamp, a date, or whole milliseconds since 1970.

        Right after a source that nothing else reads, the strategy applies to each split separately.
        """
        caller = "assign_timestamps_and_watermarks"
        self._known([column], caller)
        if self.schema is not None:
            refuse_unfit(caller, lambda: times_ms(_empty(self.schema), column))
        strategy = check_strategy(watermark_strategy, caller)
        timed = strategy.with_timestamp_assigner(BatchTimes(column))  # type: ignore[arg-type]
        stream = self._stream.assign_timestamps_and_watermarks(timed)
        stream._origins[0].transformation.split_strategy = timed
        return ColumnStream(stream, self.schema, EventTime(column))

    def key_by(self, *names: str) -> "KeyedColumnStream":
        """Rows with equal values in these columns to the same task.

        They go where ``key_by`` on records would send them.
        """
        if not names:
            raise PlanInvalid("key_by() was given no column; name at least one")
        return KeyedColumnStream(self, self._known(names, "key_by"))

    def union(self, *streams: "ColumnStream") -> "ColumnStream":
        """The batches of all these streams, in no given order between them."""
        schema = self.schema
        for stream in streams:
            if not isinstance(stream, ColumnStream):
                raise PlanInvalid(f"union() was given {stream!r}; give another ColumnStream")
            if schema is not None and stream.schema is not None:
                if listed(schema, 9999) != listed(stream.schema, 9999):
                    raise PlanInvalid(
                        f"union() of a stream with the columns {listed(schema)} and one with "
                        f"{listed(stream.schema)}; select() the same columns of both"
                    )
            else:
                schema = None
            if self._time != stream._time:
                raise PlanInvalid(
                    f"union() of a stream with event time {self._time!r} and one with "
                    f"{stream._time!r}; assign timestamps after the union"
                )
        united = self._stream.union(*(stream._stream for stream in streams))
        return ColumnStream(united, schema, self._time)

    def join(self, other_stream: object, how: str = "inner") -> "JoinedColumnStreams":
        """Rows of both streams that have equal keys and are in the same window.

        ``how``: ``"left"``, ``"right"`` and ``"full"`` also give rows without a partner, with nulls
        in the columns of the other stream.

        ::

            clicks.join(orders).where("user").equal_to("user").window(windows).apply()
        """
        from headgate.api.column_windows import joined  # noqa: PLC0415 - it is made of this module

        return joined(self, other_stream, how)

    def rebalance(self) -> "ColumnStream":
        """Batches to all tasks of the next operator in turn."""
        return ColumnStream(self._stream.rebalance(), self.schema, self._time)

    def get_side_output(self, output_tag: OutputTag) -> Any:
        """The batches that a function of ``map_batches`` yields as ``(output_tag, table)``.

        Late rows of windows and joins are batches, too, with the columns that their stream had.
        Dead letters of an error policy are a stream of records.
        """
        stream = self._stream.get_side_output(output_tag)
        if output_tag.tag_id in self._late:
            return ColumnStream(stream, *self._late[output_tag.tag_id])
        policy = self._transformation("get_side_output").on_error
        is_letters = policy is not None and policy.tag == output_tag.tag_id
        return stream if is_letters else ColumnStream(stream, None)

    def to_records(self) -> DataStream[Row]:
        """The rows as records, ``Row`` with the names of the columns."""
        make = runtime().row_maker()
        factory = partial(RecordsOperator, make, self._time)
        stream = self._stream._transform("Records", factory, "row maker", make)
        transformation = stream._transformation("to_records")
        transformation.assigns_times = self._time is not None  # else event-time windows are refused
        return stream

    def to_dataframe(self, schema: object = None, job_name: str | None = None) -> Any:
        """A lazy Spark DataFrame of the batches; see ``DataStream.to_dataframe``.

        Without a schema it has the columns of the stream.
        """
        wanted = self.schema if schema is None else schema
        if wanted is None:
            raise PlanInvalid(
                "to_dataframe() has to know the columns, and this stream has no schema; give it "
                "one, for instance to_dataframe('word string, count long')"
            )
        return self._stream._to_dataframe(wanted, job_name, as_batches=True)

    def sink_to(self, sink: Sink) -> DataStreamSink:
        """Write the rows to a sink, as records; as batches if it says ``takes_batches = True``."""
        if getattr(sink, "takes_batches", False):
            return self._stream.sink_to(sink)
        return self.to_records().sink_to(sink)

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Print each row."""
        return self.to_records().print(sink_identifier)

    def execute_and_collect(self, job_execution_name: str | None = None) -> CloseableIterator[Row]:
        """Run the program and bring the rows here as records; see ``DataStream``."""
        return self.to_records().execute_and_collect(job_execution_name)

    def get_execution_environment(self) -> Any:
        return self._stream.get_execution_environment()

    # Inside.

    def _transformation(self, caller: str) -> Transformation:
        return self._stream._transformation(caller)

    def _known(self, names: Iterable[str], caller: str) -> tuple[str, ...]:
        """These names, all of them columns as far as is known."""
        found = tuple(names)
        if not all(isinstance(name, str) for name in found):
            raise PlanInvalid(f"{caller}() was given {found!r}; give names of columns")
        if problem := check_names(self.schema, found):
            raise PlanInvalid(f"{caller}(): {problem}")
        return found

    def _evaluated(self, columns: dict[str, Any], caller: str) -> pa.Schema | None:
        """The schema of what these expressions give; an empty batch tells."""
        if self.schema is None:
            return None
        empty = _empty(self.schema)
        return refuse_unfit(caller, lambda: Projection(columns).project(empty)).schema

    def _projected(self, name: str, columns: dict[str, Any], caller: str) -> "ColumnStream":
        schema = self._evaluated(columns, caller)
        is_kept = self._time is not None and columns.get(self._time.column, 0) is None
        stream = self._processed(name, Projection(columns), columns, schema)
        return ColumnStream(stream._stream, schema, self._time if is_kept else None)

    def _processed(
        self, name: str, function: object, given: object, schema: pa.Schema | None
    ) -> "ColumnStream":
        factory = partial(ProcessOperator, function)
        stream = self._stream._transform(name, factory, "process function", given, BATCHES)
        time = self._time
        is_gone = schema is not None and time is not None and time.column not in schema.names
        return ColumnStream(stream, schema, None if is_gone else time)


class KeyedColumnStream:
    """Made by ``key_by`` of columns: aggregates and windows of each key.

    Aggregates are named as in pandas: ``aggregate(total=("amount", "sum"), orders="count")``; the
    kinds are sum, count, min, max and mean. A streaming job sends, for each batch, the running
    aggregates of the keys in it; a batch job sends those of each key once, at its end.
    """

    def __init__(
        self, stream: ColumnStream, names: tuple[str, ...], caller: str = "key_by"
    ) -> None:
        for name in names:
            kind = None if stream.schema is None else stream.schema.field(name).type
            if kind is not None and not is_key_type(kind):
                raise PlanInvalid(
                    f"{caller}(): column {name!r} of type {kind} cannot be a key; take whole "
                    f"numbers, texts, bytes, booleans, dates or decimals"
                )
        self._columns = stream
        self._names = names

    def aggregate(self, **aggregates: AggregateArgument) -> ColumnStream:
        """Running aggregates: ``aggregate(total=("amount", "sum"), orders="count")``."""
        return self._rolling(self._parsed(aggregates, "aggregate"))

    def count(self) -> ColumnStream:
        """How many rows each key has, in a column ``count``."""
        return self._rolling((ColumnAggregate("count", "count"),))

    def sum(self, *names: str) -> ColumnStream:
        """The sums of columns, called ``amount_sum`` and so on."""
        return self._rolling(self._of_kind("sum", names))

    def min(self, *names: str) -> ColumnStream:
        """The smallest values of columns, called ``amount_min`` and so on."""
        return self._rolling(self._of_kind("min", names))

    def max(self, *names: str) -> ColumnStream:
        """The largest values of columns, called ``amount_max`` and so on."""
        return self._rolling(self._of_kind("max", names))

    def mean(self, *names: str) -> ColumnStream:
        """The means of columns, called ``amount_mean`` and so on."""
        return self._rolling(self._of_kind("mean", names))

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> "WindowedColumnStream":
        """Rows of a key that belong together in time: tumbling, sliding or session windows."""
        from headgate.api.column_windows import (  # noqa: PLC0415 - it is made of this module
            WindowedColumnStream,
        )

        return WindowedColumnStream(self, window_assigner)

    def map_batches(
        self, func: Callable[[Any], Any], schema: object = None, form: str | None = None
    ) -> ColumnStream:
        """Call a function with batches of which all rows of a key are in the same task."""
        stream = self._shipped(self._columns._stream, self._names)
        keyed = ColumnStream(stream, self._columns.schema, self._columns._time)
        return keyed._mapped(func, schema, form, self._names)

    def to_records(self) -> "KeyedStream":
        """The rows as records, keyed by the value of the column, or a tuple of several."""
        return self._columns.to_records().key_by(RowKey(self._names))

    # Inside.

    def _parsed(
        self, aggregates: dict[str, AggregateArgument], caller: str
    ) -> tuple[ColumnAggregate, ...]:
        found = []
        for name, given in aggregates.items():
            pair: Any = (None, given) if isinstance(given, str) else given
            column, kind = pair if isinstance(pair, tuple) and len(pair) == 2 else (None, None)
            if kind not in KINDS or (column is None and kind != "count"):
                raise PlanInvalid(
                    f"{caller}() was given {name}={given!r}; give a column and one of "
                    f"{', '.join(KINDS)}, such as {name}=('amount', 'sum'), or 'count'"
                )
            if column is not None:
                self._columns._known([column], caller)
            found.append(ColumnAggregate(name, kind, column))  # type: ignore[arg-type]
        if not found:
            raise PlanInvalid(f"{caller}() was given nothing; write total=('amount', 'sum')")
        return tuple(found)

    def _of_kind(self, kind: str, names: Sequence[str]) -> tuple[ColumnAggregate, ...]:
        return self._parsed({f"{name}_{kind}": (name, kind) for name in names}, kind)

    def _rolling(self, aggregates: tuple[ColumnAggregate, ...]) -> ColumnStream:
        aggregation = PartialAggregation(self._names, aggregates)
        records = PartialRecords(aggregation)

        def make(batch: bool) -> Callable[[], Operator]:
            return partial(ReduceOperator, records.merge, records.key_of, batch)

        return self._merged("Aggregate", aggregation, records, make)

    def _merged(
        self,
        name: str,
        aggregation: PartialAggregation,
        records: PartialRecords,
        make: Callable[[bool], Callable[[], Operator]],
        size_ms: int = 0,
        late_tag: OutputTag | None = None,
    ) -> ColumnStream:
        """Fold batches before they travel, then merge by key what comes.

        ``late_tag``: late rows have a side output, so that rows travel and are folded downstream.
        """
        schema, aggregates = self._columns.schema, aggregation.aggregates
        if schema is not None:
            refuse_unfit("aggregate", lambda: aggregation.partial(_empty(schema)))
        gap_ms = 0 if aggregation.slices is None else aggregation.slices.gap_ms
        is_windowed = bool(size_ms or gap_ms)
        bounds = [WINDOW_START, WINDOW_END] if is_windowed else []
        names = [*self._names, *bounds, *(each.name for each in aggregates)]
        if len(set(names)) < len(names):
            raise PlanInvalid(f"the result would have the columns {', '.join(names)}; rename some")
        kinds: list[pa.DataType | None] = [
            None if schema is None else schema.field(key).type for key in self._names
        ]
        kinds += [BOUND for _ in bounds]
        kinds += [result_type(each, schema) for each in aggregates]
        results = ResultBatches(records, names, kinds, 0 if gap_ms else size_ms, gap_ms)
        is_timed = aggregation.slices is not None

        late = None if late_tag is None else late_tag.tag_id
        here = None if late is None else aggregation

        def translate(context: TranslationContext) -> Factory:
            inner = make(context.batch)
            return partial(MergedPartialsOperator, inner, records, results, is_timed, here, late)

        shipped = self._partials(name, aggregation, late is None)
        merged = shipped._transform_with(name, translate, "aggregates", aggregates, BATCHES)
        merged._origins[0].transformation.assigns_times = is_windowed
        known = [(name, kind) for name, kind in zip(names, kinds, strict=True) if kind is not None]
        found = pa.schema(known) if len(known) == len(names) else None
        sides = {} if late is None else {late: (schema, self._columns._time)}
        time = EventTime(WINDOW_END, -1) if is_windowed else None
        return ColumnStream(merged, found, time, sides)

    def _partials(self, name: str, aggregation: PartialAggregation, is_folded: bool) -> DataStream:
        """Partial rows on their way to the tasks of their keys, or the rows themselves."""
        stream = self._columns._stream
        if not is_folded:
            return self._shipped(stream, self._names)

        def translate(context: TranslationContext) -> Factory:
            return partial(PartialsOperator, aggregation, _timeout_ms(stream))

        name, aggregates = f"{name} within Batches", aggregation.aggregates
        partials = stream._transform_with(name, translate, "aggregates", aggregates, BATCHES)
        partials._origins[0].transformation.is_internal = True
        return self._shipped(partials, aggregation.key_names)

    @staticmethod
    def _shipped(stream: DataStream, names: tuple[str, ...]) -> DataStream:
        return stream._shipped(ship_strategies.hash_columns(names))


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    """A batch that shows whether something fits the schema."""
    return pa.RecordBatch.from_pylist([], schema=schema)


def refuse_unfit(caller: str, attempt: Callable[[], Any]) -> Any:
    """Return the result of ``attempt``; raises PlanInvalid if the columns do not fit."""
    try:
        return attempt()
    except BatchUnfit as error:
        raise PlanInvalid(f"{caller}(): {error.problem}") from None


def columns_of(stream: DataStream, schema: object) -> ColumnStream:
    """The records of a stream as columns, for ``DataStream.columns``."""
    known = None if schema is None else runtime().arrow_schema(schema, "columns")
    untyped = (None, Types.PICKLED_BYTE_ARRAY())
    for origin in stream._origins:
        if origin.tag is None and origin.transformation.output_type in untyped:
            origin.transformation.output_type = BatchTypeInfo(known, is_checked=True)
            origin.transformation.passes_on = False  # what it gives is looked at
    return ColumnStream(DataStream(stream._draft, stream._origins, BATCHES), known)


def batched(stream: DataStream, schema: object, rows: int) -> ColumnStream:
    """The records of a stream in batches of columns, for ``DataStream.to_arrow``."""
    if type(rows) is not int or rows < 1:
        raise PlanInvalid(f"to_arrow() was given rows={rows!r}; give a whole number above 0")
    known = runtime().arrow_schema(schema, "to_arrow")
    make = runtime().batch_maker(known)

    def translate(context: TranslationContext) -> Factory:
        return partial(BatchesOperator, make, rows, _timeout_ms(stream))

    made = stream._transform_with("Batches", translate, "batch maker", make, BATCHES)
    return ColumnStream(made, known)


def _timeout_ms(stream: DataStream) -> int:
    """How long records may wait for others: as long as in a buffer."""
    return ExchangeSettings.parse(stream._draft.configuration.to_dict()).buffer_timeout_ms


class RowKey:
    """Takes the key of a row by the names of columns."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def __call__(self, row: Any) -> Any:
        if len(self._names) == 1:
            return row[self._names[0]]
        return tuple([row[name] for name in self._names])


def col(name: str) -> compute.Expression:
    """A column in an expression: ``col("amount") > 10``."""
    return compute.field(name)


def _check_expression(given: object, caller: str) -> None:
    if not isinstance(given, compute.Expression):
        raise PlanInvalid(
            f"{caller}() of columns was given {given!r}; give an expression, such as "
            f"col('amount') > 10, or take records with to_records()"
        )


def _expression(given: Any, name: str) -> compute.Expression:
    """An expression, a constant, or the name of a column."""
    if isinstance(given, compute.Expression):
        return given
    if isinstance(given, str):
        return compute.field(given)
    try:
        return compute.scalar(given)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise PlanInvalid(
            f"column {name!r} was given {given!r}; give an expression such as col('amount') * 2, "
            f"the name of a column, or a constant ({error})"
        ) from None
