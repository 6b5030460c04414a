"""Windows and window joins on columns: rows that belong together in time, folded or joined.

::

    clicks.key_by("user").window(TumblingEventTimeWindows.of(Time.minutes(1))).count()
    clicks.join(orders).where("user").equal_to("user").window(windows).apply()

Law: windows, aggregates and joined rows are those of the same program on records, except that the
rows of a batch count as having come together. Columns that are not there, keys that are never equal
and names that are taken are refused when the program is written, if the schemas are known, and with
the first batches otherwise. Rows are cut into slices that lie within windows, see ``Slices``.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from math import gcd
from typing import Any, Final

from headgate.api.checks import check_tag
from headgate.api.columns import (
    BATCHES,
    AggregateArgument,
    ColumnStream,
    KeyedColumnStream,
    refuse_unfit,
)
from headgate.api.draft import Factory, TranslationContext
from headgate.api.windowed import Windowing, check_kind
from headgate.base.errors import PlanInvalid
from headgate.core.chain.operator import Operator
from headgate.core.columns.aggregates import (
    ColumnAggregate,
    PartialAggregation,
    PartialRecords,
    Slices,
)
from headgate.core.columns.batches import listed
from headgate.core.columns.joined_columns import JOIN_KINDS, WINDOW_END, JoinedColumns, JoinKind
from headgate.core.columns.operators import LATE_PARTIALS
from headgate.core.columns.times import EventTime, PartialSessions
from headgate.core.columns.window_join import JoinSide, JoinWindows, WindowJoinOperator
from headgate.core.window.operator import WindowOperator
from headgate.core.window.spec import Reduced
from headgate.functions.assigners import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from headgate.functions.evictors import Evictor
from headgate.functions.function import OutputTag
from headgate.functions.triggers import (
    ContinuousProcessingTimeTrigger,
    EventTimeTrigger,
    ProcessingTimeTrigger,
    Trigger,
)


class WindowedColumnStream(Windowing):
    """Made by ``window`` of keyed columns; results have the bounds of their window.

    They have the keys, ``window_start`` and ``window_end`` (which is not part of the window), and
    the aggregates. Rows of a batch count as having come together.
    """

    def __init__(self, keyed: KeyedColumnStream, assigner: WindowAssigner[Any, Any]) -> None:
        super().__init__(assigner, keyed._columns._stream)
        self._keyed = keyed
        self._late_tag: OutputTag | None = None
        if type(assigner) not in _WINDOWS:
            raise PlanInvalid(
                f"window() of columns was given {assigner!r}; give tumbling, sliding or session "
                f"windows, or take records with to_records()"
            )
        if assigner.is_event_time() and keyed._columns._time is None:
            raise PlanInvalid(
                f"{type(assigner).__name__} are windows in event time, and no column of this "
                f"stream holds it; call assign_timestamps_and_watermarks(strategy, column) before"
            )

    def trigger(self, trigger: Trigger[Any, Any]) -> "WindowedColumnStream":
        """When windows fire: a trigger by time, as others would count partial rows."""
        if type(trigger) not in _TRIGGERS:
            raise PlanInvalid(
                f"trigger() of windows on columns was given {type(trigger).__name__}; give a "
                f"trigger by time, such as ContinuousProcessingTimeTrigger, or take records with "
                f"to_records()"
            )
        return super().trigger(trigger)

    def evictor(self, evictor: Evictor[Any, Any]) -> "WindowedColumnStream":
        """Rows are folded before they come to a window, so that none can leave it."""
        raise PlanInvalid(
            "windows on columns have no evictor, because their rows are folded before; take "
            "records with to_records()"
        )

    def side_output_late_data(self, output_tag: OutputTag) -> "WindowedColumnStream":
        """Rows that are too late go to this side output, as batches; otherwise they are dropped.

        Read them with ``get_side_output(output_tag)`` of the result. Rows then travel as they are,
        and are folded where their windows are.
        """
        check_tag(output_tag, "side_output_late_data")
        if not self._assigner.is_event_time():
            raise PlanInvalid(
                f"side_output_late_data() was given {output_tag!r}, and no row is late in windows "
                f"in processing time; leave it out, or take windows in event time"
            )
        self._late_tag = check_tag(output_tag, "side_output_late_data", self._late_tag, "late rows")
        return self

    def aggregate(self, **aggregates: AggregateArgument) -> ColumnStream:
        """Aggregates of each window: ``aggregate(total=("amount", "sum"), orders="count")``."""
        return self._windowed(self._keyed._parsed(aggregates, "aggregate"))

    def count(self) -> ColumnStream:
        """How many rows each window has, in a column ``count``."""
        return self._windowed((ColumnAggregate("count", "count"),))

    def sum(self, *names: str) -> ColumnStream:
        """The sums of columns, called ``amount_sum`` and so on."""
        return self._windowed(self._keyed._of_kind("sum", names))

    def min(self, *names: str) -> ColumnStream:
        """The smallest values of columns, called ``amount_min`` and so on."""
        return self._windowed(self._keyed._of_kind("min", names))

    def max(self, *names: str) -> ColumnStream:
        """The largest values of columns, called ``amount_max`` and so on."""
        return self._windowed(self._keyed._of_kind("max", names))

    def mean(self, *names: str) -> ColumnStream:
        """The means of columns, called ``amount_mean`` and so on."""
        return self._windowed(self._keyed._of_kind("mean", names))

    def _windowed(self, aggregates: tuple[ColumnAggregate, ...]) -> ColumnStream:
        slices, size_ms = self._slices()
        aggregation = PartialAggregation(self._keyed._names, aggregates, slices)
        records = PartialRecords(aggregation)
        late = None if slices is None else LATE_PARTIALS
        plan = self._plan(records.key_of, Reduced(records.merge), None, late)
        if slices is not None and slices.gap_ms:
            sessions: Any = PartialSessions(slices.gap_ms)
            plan = replace(plan, assigner=sessions)

        def make(batch: bool) -> Callable[[], Operator]:
            return partial(WindowOperator, replace(plan, batch=batch))

        name = "Window Aggregate"
        return self._keyed._merged(name, aggregation, records, make, size_ms, self._late_tag)

    def _slices(self) -> tuple[Slices | None, int]:
        """How rows are cut before they are folded, and how long a window is."""
        assigner: Any = self._assigner
        time = self._keyed._columns._time
        if isinstance(assigner, EventTimeSessionWindows):
            assert time is not None
            return Slices(time, gap_ms=assigner.gap_ms), 0
        size_ms, slide_ms = assigner.size_ms, getattr(assigner, "slide_ms", assigner.size_ms)
        if not assigner.is_event_time():
            return None, size_ms
        assert time is not None
        return Slices(time, gcd(size_ms, slide_ms), assigner.offset_ms), size_ms


_TRIGGERS: Final = (
    ContinuousProcessingTimeTrigger,
    EventTimeTrigger,
    ProcessingTimeTrigger,
)
_EVENT_TIME_WINDOWS: Final = (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
_WINDOWS: Final = (
    *_EVENT_TIME_WINDOWS,
    SlidingProcessingTimeWindows,
    TumblingProcessingTimeWindows,
)


Keyed = tuple[KeyedColumnStream, KeyedColumnStream]


def joined(first: ColumnStream, second: object, how: object) -> "JoinedColumnStreams":
    """Check the arguments of ``ColumnStream.join`` and begin the join."""
    if not isinstance(second, ColumnStream):
        raise PlanInvalid(
            f"join() of columns was given {second!r}; give another stream of columns, such as "
            f"that of columns() or to_arrow(schema), or join records with to_records()"
        )
    if how not in JOIN_KINDS:
        raise PlanInvalid(f"join() was given how={how!r}; give one of {', '.join(JOIN_KINDS)}")
    first._stream._check_neighbour(second._stream, "join")
    if how != "inner" and (first.schema is None or second.schema is None):
        raise PlanInvalid(
            f"join(how={how!r}) fills columns with nulls, so it has to know them, and one of both "
            f"streams has no schema; give columns(schema) or map_batches(…, schema=…) one"
        )
    return JoinedColumnStreams(first, second, how)  # type: ignore[arg-type]


class JoinedColumnStreams:
    """Made by ``join`` of columns; say next by which keys."""

    def __init__(self, first: ColumnStream, second: ColumnStream, how: JoinKind) -> None:
        self._streams = (first, second)
        self._how = how

    def where(self, *names: str) -> "WhereColumns":
        """The columns of the first stream that are its key."""
        first, second = self._streams
        return WhereColumns(_keyed(first, names, "where"), second, self._how)


class WhereColumns:
    """The first stream has its keys."""

    def __init__(self, first: KeyedColumnStream, second: ColumnStream, how: JoinKind) -> None:
        self._first = first
        self._second = second
        self._how = how

    def equal_to(self, *names: str) -> "EqualToColumns":
        """As many columns of the second stream; rows with equal values meet."""
        second = _keyed(self._second, names, "equal_to")
        if len(names) != len(self._first._names):
            raise PlanInvalid(
                f"equal_to() was given {len(names)} columns and where() {len(self._first._names)}; "
                f"give both the same number"
            )
        return EqualToColumns((self._first, second), self._how)


def _keyed(stream: ColumnStream, names: tuple[str, ...], caller: str) -> KeyedColumnStream:
    if not names:
        raise PlanInvalid(f"{caller}() was given no column; name at least one")
    return KeyedColumnStream(stream, stream._known(names, caller), caller)


class EqualToColumns:
    """Both streams have their keys."""

    def __init__(self, keyed: Keyed, how: JoinKind) -> None:
        self._keyed = keyed
        self._how = how

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> "JoinedColumnWindows":
        """In which windows they meet: tumbling, sliding or session windows in event time."""
        return JoinedColumnWindows(self._keyed, self._how, window_assigner)


class JoinedColumnWindows(Windowing):
    """Two column streams to be joined, with their windows; ``apply`` makes the join."""

    def __init__(self, keyed: Keyed, how: JoinKind, assigner: WindowAssigner[Any, Any]) -> None:
        check_kind(assigner, "window", WindowAssigner, "TumblingEventTimeWindows.of(…)")
        if type(assigner) not in _EVENT_TIME_WINDOWS:
            raise PlanInvalid(
                f"window() of a join of columns was given {assigner!r}; give tumbling, sliding or "
                f"session windows in event time, or join records with to_records()"
            )
        for side, each in zip(_SIDES, keyed, strict=True):
            if each._columns._time is None:
                raise PlanInvalid(
                    f"{type(assigner).__name__} are windows in event time, and no column of the "
                    f"{side} stream holds it; call assign_timestamps_and_watermarks(strategy, "
                    f"column) before join()"
                )
        super().__init__(assigner, *(each._columns._stream for each in keyed))
        self._keyed = keyed
        self._how = how
        self._late_tags: list[OutputTag | None] = [None, None]

    def trigger(self, trigger: Trigger[Any, Any]) -> "JoinedColumnWindows":
        """Windows fire when event time has passed them; no other trigger is possible."""
        if type(trigger) is not EventTimeTrigger:
            raise PlanInvalid(
                f"trigger() of a join of columns was given {type(trigger).__name__}, and its "
                f"windows fire by event time only; leave it out, or join records with to_records()"
            )
        return super().trigger(trigger)

    def evictor(self, evictor: Evictor[Any, Any]) -> "JoinedColumnWindows":
        """Rows are not looked at one by one, so that none can leave a window."""
        raise PlanInvalid(
            "windows of a join of columns have no evictor, because rows are not looked at one by "
            "one; filter() the rows before, or join records with to_records()"
        )

    def side_output_left_late_data(self, output_tag: OutputTag) -> "JoinedColumnWindows":
        """Rows of the first stream that are too late go to this side output, as batches."""
        return self._with_late([0], output_tag, "side_output_left_late_data")

    def side_output_right_late_data(self, output_tag: OutputTag) -> "JoinedColumnWindows":
        """Rows of the second stream that are too late go to this side output, as batches."""
        return self._with_late([1], output_tag, "side_output_right_late_data")

    def side_output_late_data(self, output_tag: OutputTag) -> "JoinedColumnWindows":
        """Rows of both streams that are too late, if these have the same columns."""
        left, right = (each._columns.schema for each in self._keyed)
        if left is None or right is None or not left.equals(right):
            columns = ["?" if schema is None else listed(schema) for schema in (left, right)]
            raise PlanInvalid(
                f"side_output_late_data() puts late rows of both streams together, and the left "
                f"has the columns {columns[0]}, the right {columns[1]}; use "
                f"side_output_left_late_data() and side_output_right_late_data()"
            )
        return self._with_late([0, 1], output_tag, "side_output_late_data")

    def apply(self, *, suffixes: tuple[str, str] = ("_left", "_right")) -> ColumnStream:
        """The joined rows: columns of the first stream, of the second, then the window's bounds.

        Keys with the same name are there once. Another column of the second stream whose name is
        taken gets the second of the ``suffixes``. ``window_start`` and ``window_end`` are added;
        a column that is called so gets the suffix of its side.
        """
        if list(map(type, suffixes)) != [str, str]:
            raise PlanInvalid(
                f"apply() of columns was given suffixes={suffixes!r}; give two texts, such as "
                f"('_left', '_right'), and call map_batches(function) on the result"
            )
        left, right = self._keyed
        columns = JoinedColumns(left._names, right._names, self._how, suffixes)
        schema = None
        if left._columns.schema is not None and right._columns.schema is not None:
            schemas = left._columns.schema, right._columns.schema
            schema = refuse_unfit("apply", lambda: columns.schema(*schemas))
        sides = [
            JoinSide(
                each._names,
                _time_of(each),
                each._columns.schema,
                None if tag is None else tag.tag_id,
            )
            for each, tag in zip(self._keyed, self._late_tags, strict=True)
        ]
        windows = self._join_windows()

        def translate(context: TranslationContext) -> Factory:
            return partial(WindowJoinOperator, windows, sides, columns)

        shipped = [each._shipped(each._columns._stream, each._names) for each in self._keyed]
        stream = shipped[0]._transform_with(
            "Window Join", translate, "join", columns, BATCHES, shipped[1]
        )
        stream._origins[0].transformation.assigns_times = True  # the time of the window
        late = {
            tag.tag_id: (side.schema, side.time)
            for tag, side in zip(self._late_tags, sides, strict=True)
            if tag is not None
        }
        return ColumnStream(stream, schema, EventTime(WINDOW_END, -1), late)

    def _join_windows(self) -> JoinWindows:
        assigner: Any = self._assigner
        if isinstance(assigner, EventTimeSessionWindows):
            return JoinWindows(gap_ms=assigner.gap_ms, lateness_ms=self._lateness_ms)
        slide_ms = getattr(assigner, "slide_ms", assigner.size_ms)
        return JoinWindows(
            assigner.size_ms, slide_ms, assigner.offset_ms, lateness_ms=self._lateness_ms
        )

    def _with_late(self, sides: Iterable[int], tag: object, caller: str) -> "JoinedColumnWindows":
        for side in sides:
            known = self._late_tags[side]
            self._late_tags[side] = check_tag(tag, caller, known, "late rows of a stream")
        left, right = self._late_tags
        if left == right and left is not None and caller != "side_output_late_data":
            raise PlanInvalid(
                f"{caller}() was given {tag!r}, which the other stream has already; give each a "
                f"tag of its own, or use side_output_late_data()"
            )
        return self


def _time_of(keyed: KeyedColumnStream) -> EventTime:
    time = keyed._columns._time
    assert time is not None, "windows without event time were refused"
    return time


_SIDES: Final = ("left", "right")
