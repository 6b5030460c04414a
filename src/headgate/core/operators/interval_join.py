"""The interval join: pairs of records with the same key whose event times are close to each other.

Law: a left and a right record meet if ``left + lower <= right <= left + upper``, once, whichever
came first; a pair has the later of both times. A record is kept while the watermark
allows a partner to come. A record that the watermark has passed is late: dropped, or a side output.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from headgate.base.elements import MIN_WATERMARK_MS, Bundle, Key, Record, Watermark
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.emission import Collector
from headgate.core.chain.keyed_context import KeyedContext, KeySelection
from headgate.core.chain.left_out import FailureStreak, LateDrops, LateRecords
from headgate.core.chain.user_function import StatefulOperator, UserFunction, iterable
from headgate.core.state.backend import StateSpec
from headgate.functions.context import TimeDomain

LEFT, RIGHT = 0, 1
_NAMES: Final = ("left", "right")


class Interval(NamedTuple):
    """How far a right record may be from a left one, both ends included; None: late is dropped."""

    lower_ms: int
    upper_ms: int
    late_tags: tuple[str | None, str | None] = (None, None)


class JoinContext:
    """What ``process_element(left, right, ctx)`` learns about the pair."""

    __slots__ = ("left_ms", "right_ms")

    def __init__(self) -> None:
        self.left_ms = self.right_ms = MIN_WATERMARK_MS

    def get_left_timestamp(self) -> int:
        """Timestamp of the left record."""
        return self.left_ms

    def get_right_timestamp(self) -> int:
        """Timestamp of the right record."""
        return self.right_ms

    def timestamp(self) -> int:
        """Timestamp of the pair: the later of both."""
        return max(self.left_ms, self.right_ms)

    def get_timestamp(self) -> int:
        """Timestamp of the pair, as ``timestamp`` gives it."""
        return self.timestamp()


class IntervalJoinOperator(StatefulOperator):
    """Keeps the records of each side by time, and forgets them by timers.

    The times that are kept of a key stand in memory too, in order, as its timers do: so a record
    finds its partners without a look at all others of its key.
    """

    inputs = 2

    def __init__(
        self,
        function: object,
        key_of_left: Callable[[Record], Key],
        key_of_right: Callable[[Record], Key],
        interval: Interval,
    ) -> None:
        self._function: UserFunction = UserFunction(function, "process_element")
        self._keys_of = (key_of_left, key_of_right)
        self._interval = interval
        self._reach_ms = (max(0, interval.upper_ms), max(0, -interval.lower_ms))
        """How long after a record's time a partner may come, for each side."""
        self._times: tuple[dict[Key, list[int]], dict[Key, list[int]]] = {}, {}
        """For each side, the times that the state of a key holds; keys without any are left out."""
        self._late: list[LateRecords] = []

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._collector = Collector(self.output, not self.reuses_objects)
        self._keyed = keyed = KeyedContext(context, self._forget)
        self._cursor, self._timers = keyed.cursor, keyed.timers
        self._selections = [
            KeySelection(key_of, context.operator, keyed.backend.sweeps, context.key_type)
            for key_of in self._keys_of
        ]
        self._kept = [
            keyed.backend.map_state(StateSpec(f"records on the {name}", "map")) for name in _NAMES
        ]
        self.late = drops = LateDrops(context)
        self._late = [LateRecords(tag, self.output, drops) for tag in self._interval.late_tags]
        self._context = JoinContext()
        self._streak = None if self.failures is None else self.failures.streak()
        self._function.open(context, keyed.opener)
        self._call = self._function.call

    def key_selector(self, number: int) -> Callable[[Record], Key] | None:
        return self._keys_of[number]

    def process(self, bundle: Bundle, number: int) -> None:
        if self._streak is None:
            keys = self._selections[number].keys(bundle.records)
        else:
            bundle, keys = self._selections[number].keyed(bundle, self._streak)
        times = self._times_of(bundle, number)
        behind_ms = self._timers.watermark_ms
        call, context, take = self._call, self._context, self._collector.take
        for record, time_ms, key in zip(bundle.records, times, keys, strict=True):
            if time_ms < behind_ms:
                self._late[number].take(record, time_ms, time_ms + 1)
                continue
            self._cursor.key = key
            self._keep(record, time_ms, number)
            for left, right, later_ms in self._meet(record, time_ms, number):
                if self._streak is None:
                    found = call(left, right, context)
                    if found is not None:
                        take(iterable(found, "process_element"), later_ms)
                else:
                    self._join_or_leave_out(left, right, later_ms, self._streak)
        self._late[number].flush(behind_ms)
        self._collector.flush()

    def watermark_advanced(self, watermark: Watermark) -> None:
        self._timers.watermark_advanced(watermark.timestamp_ms)
        super().watermark_advanced(watermark)

    def key_ended(self) -> None:
        super().key_ended()
        for times in self._times:
            times.clear()

    def _keep(self, record: Record, time_ms: int, number: int) -> None:
        kept = self._kept[number]
        same = kept.get(time_ms)
        if same is None:
            same = []
            times = self._times_at(number)
            insort(times, time_ms)
            self._times[number][self._cursor.key] = times
            self._cursor.namespace = number
            self._timers.register_event_time_timer(time_ms + self._reach_ms[number])
            self._cursor.namespace = None
        same.append(record)
        kept.put(time_ms, same)

    def _meet(
        self, record: Record, time_ms: int, number: int
    ) -> Iterator[tuple[Record, Record, int]]:
        """The record with each of its partners, and the pair's time; the context knows the pair."""
        context, others = self._context, self._kept[1 - number]
        first_ms, last_ms = self._partners_ms(time_ms, number)
        times = self._times_at(1 - number)
        for other_ms in times[bisect_left(times, first_ms) : bisect_right(times, last_ms)]:
            for other in others.get(other_ms) or ():
                if number == LEFT:
                    context.left_ms, context.right_ms = time_ms, other_ms
                    yield record, other, max(time_ms, other_ms)
                else:
                    context.left_ms, context.right_ms = other_ms, time_ms
                    yield other, record, max(time_ms, other_ms)

    def _join_or_leave_out(
        self, left: Record, right: Record, later_ms: int, streak: FailureStreak
    ) -> None:
        """Take what the function makes of a pair; one that fails is left out, both are kept."""
        before = self._collector.mark
        try:
            found = self._call(left, right, self._context)
            if found is not None:
                self._collector.take(iterable(found, "process_element"), later_ms)
            streak.passed()
        except Exception as error:
            self._collector.take_back(before)
            streak.failed(error, (left, right), later_ms)

    def _partners_ms(self, time_ms: int, number: int) -> tuple[int, int]:
        lower_ms, upper_ms, _ = self._interval
        if number == LEFT:
            return time_ms + lower_ms, time_ms + upper_ms
        return time_ms - upper_ms, time_ms - lower_ms

    def _forget(self, time_ms: int, domain: TimeDomain) -> None:
        """No partner can come any more; the cursor's namespace is the number of the side."""
        number = self._cursor.namespace
        assert isinstance(number, int)
        gone_ms = time_ms - self._reach_ms[number]
        self._kept[number].remove(gone_ms)
        times = self._times[number].get(self._cursor.key)
        if times is not None:
            at = bisect_left(times, gone_ms)
            del times[at : bisect_right(times, gone_ms, at)]
            if not times:
                del self._times[number][self._cursor.key]

    def _times_at(self, number: int) -> list[int]:
        """What the cursor's key has on a side, in order."""
        times = self._times[number].get(self._cursor.key)
        if times is None:  # there is nothing, unless the state comes from before a restart
            times = sorted(self._kept[number])
            if times:
                self._times[number][self._cursor.key] = times
        return times

    def _times_of(self, bundle: Bundle, number: int) -> list[int]:
        times = [time_ms for time_ms in bundle.timestamps or () if time_ms is not None]
        if len(times) < len(bundle.records) or MIN_WATERMARK_MS in times:
            raise RuntimeError(
                f"a record on the {_NAMES[number]} of the interval join has no timestamp; "
                f"call assign_timestamps_and_watermarks() before key_by()"
            )
        return times
