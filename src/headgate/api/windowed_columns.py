"""Windows on columns: the rows of a key that belong together in time, folded before they meet.

Law: the same windows with the same aggregates as on records, but that the rows of a batch count as
having come together. Rows are cut into slices that lie within windows, see ``Slices``.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import gcd
from typing import Any, Final

from headgate.api.columns import AggregateArgument, ColumnStream, KeyedColumnStream
from headgate.api.windowed import Windowing
from headgate.base.errors import PlanInvalid
from headgate.core.chain.operator import Operator
from headgate.core.columns.aggregates import (
    ColumnAggregate,
    PartialAggregation,
    PartialRecords,
    Slices,
)
from headgate.core.columns.operators import LATE_PARTIALS
from headgate.core.columns.times import PartialSessions
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
        if not isinstance(output_tag, OutputTag):
            raise PlanInvalid(
                f"side_output_late_data() was given {output_tag!r}; give an OutputTag"
            )
        if not self._assigner.is_event_time():
            raise PlanInvalid(
                f"side_output_late_data() was given {output_tag!r}, and no row is late in windows "
                f"in processing time; leave it out, or take windows in event time"
            )
        if self._late_tag not in (None, output_tag):
            raise PlanInvalid(
                f"side_output_late_data() was given {output_tag!r} after {self._late_tag!r}; "
                f"late rows have one side output only"
            )
        self._late_tag = output_tag
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
_WINDOWS: Final = (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
