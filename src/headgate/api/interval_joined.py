"""Interval joins: pairs of records of two keyed streams that are close in event time.

::

    orders.key_by(user_of).interval_join(payments.key_by(payer_of)).between(
        Time.seconds(-1), Time.minutes(15)
    ).process(Match())

Law: a pair is found if ``left + lower <= right <= left + upper``; a bound may be left out.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

from headgate.api.checks import check_object, check_type, refuse_other_kinds
from headgate.api.datastream import DataStream
from headgate.api.draft import Origin, sorted_in_batch
from headgate.api.event_time import surely_untimed
from headgate.api.functions import ProcessJoinFunction
from headgate.api.types.types import TypeInformation
from headgate.base.errors import PlanInvalid
from headgate.core.chain.collector import OutputTag
from headgate.core.operators.interval_join import Interval, IntervalJoinOperator
from headgate.functions.time import whole_ms
from headgate.plan.stream_graph import NodeKind

if TYPE_CHECKING:
    from headgate.api.keyed import KeyedStream


class IntervalJoin:
    """Two keyed streams; the interval is still to be said."""

    def __init__(self, stream1: "KeyedStream", stream2: "KeyedStream") -> None:
        self._streams = (stream1, stream2)

    def in_event_time(self) -> "IntervalJoin":
        """The default, and the only time there is for this join."""
        return self

    def in_processing_time(self) -> "IntervalJoin":
        """Refused: a join by the clock would depend on how quick the job runs."""
        raise PlanInvalid(
            "in_processing_time() is not possible for an interval join, which needs event time; "
            "leave it out and call assign_timestamps_and_watermarks() on both streams"
        )

    def between(self, lower_bound: object, upper_bound: object) -> "IntervalJoined":
        """How far right records may be from left ones, as Time or Duration; both ends count."""
        lower_ms = whole_ms(lower_bound, "between()")
        upper_ms = whole_ms(upper_bound, "between()")
        return IntervalJoined(self._streams, lower_ms, upper_ms)


class IntervalJoined:
    """Two keyed streams and the interval; every method but ``process`` returns the object."""

    def __init__(
        self, streams: "tuple[KeyedStream, KeyedStream]", lower_ms: int, upper_ms: int
    ) -> None:
        _check_bounds(lower_ms, upper_ms)
        self._streams = streams
        self._interval = Interval(lower_ms, upper_ms)
        self._open_below = self._open_above = 0

    def lower_bound_exclusive(self) -> "IntervalJoined":
        """Records at the lower bound itself are no pair."""
        self._open_below = 1
        return self

    def upper_bound_exclusive(self) -> "IntervalJoined":
        """Records at the upper bound itself are no pair."""
        self._open_above = 1
        return self

    def side_output_left_late_data(self, output_tag: OutputTag) -> "IntervalJoined":
        """Left records that came behind the watermark are to be read by this tag."""
        return self._with_late(0, output_tag, "side_output_left_late_data")

    def side_output_right_late_data(self, output_tag: OutputTag) -> "IntervalJoined":
        """Right records that came behind the watermark are to be read by this tag."""
        return self._with_late(1, output_tag, "side_output_right_late_data")

    def process(
        self,
        process_join_function: ProcessJoinFunction[Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Call ``process_element(left, right, ctx)`` for each pair."""
        function = process_join_function
        check_object(function, "process", ("process_element",), ProcessJoinFunction)
        refuse_other_kinds(function, "process", (ProcessJoinFunction,))
        output_type = check_type(output_type, "process")
        one, two = self._streams
        for side, stream in (("left", one), ("right", two)):
            if surely_untimed(stream):
                raise PlanInvalid(
                    f"an interval join needs event time, and the records on its {side} have no "
                    f"timestamps; call assign_timestamps_and_watermarks() before key_by()"
                )
        lower_ms, upper_ms, tags = self._interval
        interval = Interval(lower_ms + self._open_below, upper_ms - self._open_above, tags)
        _check_bounds(interval.lower_ms, interval.upper_ms)
        factory = partial(IntervalJoinOperator, function, one.key_of, two.key_of, interval)
        inputs, functions = (one._origins, two._origins), (("join function", function),)
        make = sorted_in_batch(factory, one.key_of, two.key_of)
        step = one._draft.add("Interval Join", NodeKind.OPERATOR, make, inputs, functions)
        step.output_type = output_type
        step.assigns_times = True
        return DataStream(one._draft, [Origin(step)], output_type)

    def _with_late(self, number: int, tag: object, caller: str) -> "IntervalJoined":
        if not isinstance(tag, OutputTag):
            raise PlanInvalid(f"{caller}() was given {tag!r}; give an OutputTag")
        left, right = self._interval.late_tags
        tags = (left, tag.tag_id) if number else (tag.tag_id, right)
        self._interval = self._interval._replace(late_tags=tags)
        return self


def _check_bounds(lower_ms: int, upper_ms: int) -> None:
    if lower_ms > upper_ms:
        raise PlanInvalid(
            f"the interval of the join goes from {lower_ms} to {upper_ms} ms, so that no pair can "
            f"be in it; give between() a lower bound that is not above the upper one"
        )
