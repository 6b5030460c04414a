"""The window join of two streams of columns: rows with equal keys in the same event-time window.

Batches are cut by time and held as they are; when a window fires, all of its rows meet at once.
Law: the pairs of a window are those that a join of records gives, but that the rows of a batch
count as having come together: late ones let a window fire once more, not once for each of them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import gcd
from typing import Final

import numpy as np
import pyarrow as pa

from headgate.base.elements import MIN_WATERMARK_MS, Bundle, Record, Watermark
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.keyed_context import KeyedContext
from headgate.core.chain.left_out import LateDrops, how_late
from headgate.core.chain.user_function import StatefulOperator
from headgate.core.columns.batches import batch_in
from headgate.core.columns.joined_columns import JoinedColumns, MatchedRows, dense, key_numbers
from headgate.core.columns.keys import Numbers, key_column
from headgate.core.columns.operators import FittingBatches
from headgate.core.columns.times import EventTime, session_begins, slice_starts
from headgate.core.columns.window_rows import MEMORY_BYTES, WindowRows, joined
from headgate.functions.context import SnapshotMoment, TimeDomain

WHOLE: Final = 0
"""The only slice where sessions are held: which rows belong together is not known before."""


@dataclass(frozen=True, slots=True)
class JoinWindows:
    """Tumbling and sliding windows by ``size_ms`` and ``slide_ms``; sessions have a ``gap_ms``."""

    size_ms: int = 0
    slide_ms: int = 0
    offset_ms: int = 0
    gap_ms: int = 0
    lateness_ms: int = 0

    @property
    def slice_ms(self) -> int:
        """All times of a slice have the same windows."""
        return gcd(self.size_ms, self.slide_ms)

    @property
    def slices(self) -> str:
        """What state depends on."""
        if self.gap_ms:
            return "rows of sessions"
        return f"rows in slices of {self.slice_ms} ms from {self.offset_ms % self.slice_ms} ms"

    def starts(self, slice_ms: int, after_ms: int, upto_ms: int) -> range:
        """Where windows begin that a slice is in and that end in this stretch of time."""
        slide, size = self.slide_ms, self.size_ms
        lowest = max(slice_ms - size + 1, after_ms - size + 2)
        highest = min(slice_ms, upto_ms - size + 1)
        first = -((self.offset_ms - lowest) // slide) * slide + self.offset_ms
        return range(first, highest + 1, slide)

    def last_ms(self, slice_ms: int) -> int | None:
        """The last millisecond of the last window that a slice is in; None: it is in none."""
        start = (slice_ms - self.offset_ms) // self.slide_ms * self.slide_ms + self.offset_ms
        return start + self.size_ms - 1 if start + self.size_ms > slice_ms else None


@dataclass(frozen=True, slots=True)
class JoinSide:
    """One of both streams."""

    keys: tuple[str, ...]
    time: EventTime
    schema: pa.Schema | None = None
    late_tag: str | None = None
    """The side output for rows that are too late; None: they are counted and dropped."""


Fire = Callable[[MatchedRows], None]
Late = Callable[[int, pa.RecordBatch, int], None]
"""A side, its rows that came too late, and by how many milliseconds the latest of them."""


class JoinKeeper:
    """Holds rows until their windows fire. Watermarks only rise."""

    def __init__(
        self,
        windows: JoinWindows,
        rows: WindowRows,
        sides: Sequence[JoinSide],
        fire: Fire,
        late: Late,
    ) -> None:
        self._windows = windows
        self._rows = rows
        self._sides = sides
        self._fire = fire
        self._late = late

    def take(self, side: int, batch: pa.RecordBatch, times: Numbers, watermark_ms: int) -> None:
        """Rows of one side have come."""
        raise NotImplementedError

    def advance(self, before_ms: int, watermark_ms: int) -> None:
        """Event time has moved on: let windows fire, and forget what is over."""
        raise NotImplementedError


class WindowJoinOperator(StatefulOperator):
    """Two inputs of batches, one output of batches."""

    inputs = 2

    def __init__(
        self, windows: JoinWindows, sides: Sequence[JoinSide], columns: JoinedColumns
    ) -> None:
        self._windows = windows
        self._sides = tuple(sides)
        self._columns = columns
        self._is_checked = False
        """Both sides have a schema, and these fit."""

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._keyed = keyed = KeyedContext(context, _no_timers)
        self._timers = keyed.timers
        schemas = [side.schema for side in self._sides]
        self._rows = WindowRows(self._columns.keys, schemas)
        self._rows.open(keyed, context.task, self._windows.slices)
        make = SessionJoin if self._windows.gap_ms else SlicedJoin
        self._keeper: JoinKeeper = make(
            self._windows, self._rows, self._sides, self._fire, self._late
        )
        self._batches = FittingBatches(context, self.failures)
        self.late = LateDrops(context)

    def process(self, bundle: Bundle, number: int) -> None:
        for batch, times in self._batches.of(bundle, partial(self._checked, number)):
            if batch.num_rows:
                self._keeper.take(number, batch, times, self._timers.watermark_ms)

    def watermark_advanced(self, watermark: Watermark) -> None:
        before_ms = self._timers.watermark_ms
        self._timers.watermark_advanced(watermark.timestamp_ms)
        if self._timers.watermark_ms > before_ms:
            self._keeper.advance(before_ms, self._timers.watermark_ms)
        super().watermark_advanced(watermark)

    def before_barrier(self, moment: SnapshotMoment) -> None:
        self._rows.before_snapshot(self._timers.watermark_ms)

    def state_bytes(self) -> int | None:
        stored = super().state_bytes()
        return None if stored is None else stored + self._rows.waiting_bytes

    def _checked(self, number: int, record: Record) -> tuple[pa.RecordBatch, Numbers]:
        """The batch and the times of its rows; raises BatchUnfit, before anything has changed."""
        side = self._sides[number]
        batch = batch_in(record)
        for name in side.keys:
            key_column(batch, name)
        times = side.time.of(batch)
        checks = self._rows.checks
        other = checks[1 - number].schema
        if not self._is_checked and other is not None:
            schemas = [checks[number].schema or batch.schema, other]
            self._columns.schema(*(schemas if number == 0 else reversed(schemas)))
        fitting = checks[number].fit(batch, f"its {_NAMES[number]} input gave")
        self._is_checked = other is not None
        return fitting, times

    def _fire(self, rows: MatchedRows) -> None:
        for batch in self._columns.batches(rows):
            self.output.collect(Bundle([batch]))

    def _late(self, number: int, rows: pa.RecordBatch, late_ms: int) -> None:
        tag = self._sides[number].late_tag
        if tag is None:
            assert self.late is not None, "rows come after open"
            self.late.add(rows.num_rows, late_ms)
        else:
            self.output.collect_side(tag, Bundle([rows]))


_NAMES: Final = ("left", "right")


def _no_timers(time_ms: int, domain: TimeDomain) -> None:
    raise AssertionError("a join of columns registers no timers")


Window = tuple[int, list[int]]
"""Its start, and its slices that hold rows."""


class SlicedJoin(JoinKeeper):
    """Tumbling and sliding windows: each consists of slices, which several windows may share."""

    def take(self, side: int, batch: pa.RecordBatch, times: Numbers, watermark_ms: int) -> None:
        fired_ms = self._rows.fired_ms(side, batch, watermark_ms)
        touched: dict[int, list[tuple[int, pa.RecordBatch]]] = {}
        """By the start of each window that has fired already: its new rows."""
        if isinstance(fired_ms, int):
            self._cut(side, batch, times, fired_ms, touched)
        else:
            for at in np.unique(fired_ms):
                some = pa.array(fired_ms == at)
                self._cut(side, batch.filter(some), times[fired_ms == at], int(at), touched)
        if touched:
            held = self._rows.slices()
            slice_ms, size_ms = self._windows.slice_ms, self._windows.size_ms
            again = [
                (start, [at for at in held if start <= at <= start + size_ms - slice_ms])
                for start in sorted(touched)
            ]
            self._fire_all(again, MIN_WATERMARK_MS, watermark_ms, touched)

    def advance(self, before_ms: int, watermark_ms: int) -> None:
        held, due = self._rows.slices(), dict[int, list[int]]()
        for slice_ms in held:
            for start in self._windows.starts(slice_ms, before_ms, watermark_ms):
                due.setdefault(start, []).append(slice_ms)
        if due:
            self._fire_all(sorted(due.items()), before_ms, before_ms, None)
        for slice_ms in held:
            last_ms = self._windows.last_ms(slice_ms)
            if last_ms is None or last_ms + self._windows.lateness_ms <= watermark_ms:
                self._rows.drop(slice_ms)

    def _cut(
        self,
        side: int,
        batch: pa.RecordBatch,
        times: Numbers,
        fired_ms: int,
        touched: dict[int, list[tuple[int, pa.RecordBatch]]],
    ) -> None:
        """Keep rows by slice; of those that are too late, and of those in no window, none."""
        windows, late, until_ms = self._windows, [], fired_ms
        starts = slice_starts(times, windows.slice_ms, windows.offset_ms)
        for slice_ms, places in _by_number(starts):
            last_ms = windows.last_ms(slice_ms)
            if last_ms is None:
                places = np.arange(len(times)) if places is None else places
                some = places[times[places] + windows.lateness_ms <= fired_ms]
                late.append(some)
                until_ms = min([until_ms, *(times[some] + windows.lateness_ms).tolist()])
                continue
            if last_ms + windows.lateness_ms <= fired_ms:
                late.append(np.arange(len(times)) if places is None else places)
                until_ms = min(until_ms, last_ms + windows.lateness_ms)
                continue
            part = batch if places is None else batch.take(pa.array(places))
            self._rows.add(side, slice_ms, part)
            for start in windows.starts(slice_ms, fired_ms - windows.lateness_ms, fired_ms):
                touched.setdefault(start, []).append((side, part))
        too_late = np.sort(np.concatenate(late)) if late else ()
        if len(too_late):
            self._late(side, batch.take(pa.array(too_late)), how_late(fired_ms, until_ms))

    def _fire_all(
        self,
        windows: Sequence[Window],
        before_ms: int,
        watermark_ms: int,
        touched: Mapping[int, list[tuple[int, pa.RecordBatch]]] | None,
    ) -> None:
        """Windows that end after ``before_ms``, or after what their key groups have fired already.

        ``touched``: only the keys of these rows.
        """
        slices = {slice_ms for _, held in windows for slice_ms in held}
        size_ms = self._windows.size_ms
        for groups, fired_ms in self._rows.portions(slices, watermark_ms):
            after_ms = before_ms if touched is not None else fired_ms
            read = {slice_ms: self._rows.read(slice_ms, groups) for slice_ms in slices}
            waiting = WindowBatch(self._sides, size_ms, self._fire)
            for start, held in windows:
                if start + size_ms - 1 > after_ms:
                    sides = [[b for at in held for b in read[at][side]] for side in (0, 1)]
                    waiting.add(start, sides, None if touched is None else touched[start])
            waiting.fire()


def _by_number(numbers: Numbers) -> Iterable[tuple[int, Numbers | None]]:
    """Each number and the places where it stands; None: everywhere."""
    first = int(numbers[0])
    if (numbers == first).all():
        return [(first, None)]
    order = np.argsort(numbers, kind="stable")
    found = numbers[order]
    begins = np.flatnonzero(np.diff(found, prepend=found[0] - 1))
    return zip(found[begins].tolist(), np.split(order, begins[1:]), strict=True)


class WindowBatch:
    """Joins the rows of several windows at once; rows of different windows are never joined."""

    def __init__(self, sides: Sequence[JoinSide], size_ms: int, fire: Fire) -> None:
        self._sides = sides
        self._size_ms = size_ms
        self._fire = fire
        self._clear()

    def add(
        self,
        start: int,
        sides: Sequence[Sequence[pa.RecordBatch]],
        touched: Iterable[tuple[int, pa.RecordBatch]] | None,
    ) -> None:
        """The rows of a window; ``touched``: only those whose key is among these, of a side."""
        number = len(self._starts)
        self._starts.append(start)
        for side, batches in enumerate(sides):
            self._batches[side].extend(batches)
            self._windows[side].extend(np.full(len(batch), number) for batch in batches)
            self._bytes += sum(batch.nbytes for batch in batches)
        if touched is not None:
            self._touched += [(number, *each) for each in touched]
        if self._bytes > MEMORY_BYTES:
            self.fire()

    def fire(self) -> None:
        """Join what was added."""
        if not self._starts:
            return
        left, right = map(_table, self._batches, self._sides)
        if left is not None and right is not None:
            self._join(left, right)
        self._clear()

    def _join(self, left: pa.RecordBatch, right: pa.RecordBatch) -> None:
        windows = [
            np.concatenate(numbers) if numbers else np.empty(0, dtype=np.int64)
            for numbers in self._windows
        ]
        keys = [
            [key_column(batch, name) for name in side.keys]
            for batch, side in zip((left, right), self._sides, strict=True)
        ]
        for number, side, batch in self._touched:
            keys.append([key_column(batch, name) for name in self._sides[side].keys])
            windows.append(np.full(len(batch), number))
        numbers = key_numbers(keys)
        if len(self._starts) > 1:
            ends = np.cumsum([len(each) for each in numbers])[:-1]
            together = np.concatenate(numbers) * len(self._starts) + np.concatenate(windows)
            numbers = np.split(dense(together), ends)
        if self._touched:
            left, right, numbers, windows = _restricted(left, right, numbers, windows)
        starts = np.array(self._starts)
        self._fire(
            MatchedRows(
                left,
                right,
                (numbers[0], numbers[1]),
                (windows[0], windows[1]),
                starts,
                starts + self._size_ms,
            )
        )

    def _clear(self) -> None:
        self._starts: list[int] = []
        self._batches: tuple[list[pa.RecordBatch], list[pa.RecordBatch]] = [], []
        self._windows: tuple[list[Numbers], list[Numbers]] = [], []
        self._touched: list[tuple[int, int, pa.RecordBatch]] = []
        self._bytes = 0


def _table(batches: Sequence[pa.RecordBatch], side: JoinSide) -> pa.RecordBatch | None:
    """Batches as one; None: a side without rows whose columns nobody knows, so that nothing can
    be joined with it."""
    if batches:
        return joined(batches)
    return None if side.schema is None else pa.RecordBatch.from_pylist([], side.schema)


def _restricted(
    left: pa.RecordBatch, right: pa.RecordBatch, numbers: list[Numbers], windows: list[Numbers]
) -> tuple[pa.RecordBatch, pa.RecordBatch, list[Numbers], list[Numbers]]:
    """Only the rows on both sides whose number is among those after the first two."""
    is_wanted = np.zeros(1 + max(each.max(initial=0) for each in numbers), dtype=bool)
    for each in numbers[2:]:
        is_wanted[each] = True
    kept = [is_wanted[each] for each in numbers[:2]]
    return (
        left.filter(pa.array(kept[0])),
        right.filter(pa.array(kept[1])),
        [each[some] for each, some in zip(numbers, kept, strict=False)],
        [each[some] for each, some in zip(windows, kept, strict=False)],
    )


class SessionJoin(JoinKeeper):
    """Sessions: rows of a key, of both sides, that are not further apart than the gap."""

    def __init__(
        self,
        windows: JoinWindows,
        rows: WindowRows,
        sides: Sequence[JoinSide],
        fire: Fire,
        late: Late,
    ) -> None:
        super().__init__(windows, rows, sides, fire, late)
        self._due_ms = MIN_WATERMARK_MS
        """No session fires or is forgotten before."""

    def take(self, side: int, batch: pa.RecordBatch, times: Numbers, watermark_ms: int) -> None:
        fired_ms = self._rows.fired_ms(side, batch, watermark_ms)
        if (times + self._windows.gap_ms - 1 <= fired_ms).any():
            self._find_sessions(watermark_ms, watermark_ms, (side, batch))
        else:
            self._rows.add(side, WHOLE, batch)
            self._due_ms = min(self._due_ms, int(times.min()) + self._windows.gap_ms - 1)

    def advance(self, before_ms: int, watermark_ms: int) -> None:
        if watermark_ms >= self._due_ms:
            self._find_sessions(before_ms, watermark_ms, None)

    def _find_sessions(
        self, before_ms: int, watermark_ms: int, new: tuple[int, pa.RecordBatch] | None
    ) -> None:
        """Find the sessions among all rows; ``new`` ones count as having come just now."""
        groups_of_new = np.unique(self._rows.groups_of(*new)).tolist() if new else []
        dues = []
        for groups, fired_ms in self._rows.portions([WHOLE], before_ms, groups_of_new):
            some = new
            if new is not None and groups is not None:
                is_here = np.isin(self._rows.groups_of(*new), groups)
                some = (new[0], new[1].filter(pa.array(is_here)))
            dues.append(self._fire_portion(groups, fired_ms, max(fired_ms, watermark_ms), some))
        self._due_ms = min(dues, default=_NEVER)

    def _fire_portion(
        self,
        groups: Sequence[int] | None,
        fired_ms: int,
        watermark_ms: int,
        new: tuple[int, pa.RecordBatch] | None,
    ) -> int:
        """Find the sessions of some key groups; returns when to look again."""
        sides = self._rows.read(WHOLE, groups)
        if new is not None:
            sides[new[0]].append(new[1])
        if not (sides[0] or sides[1]):
            return _NEVER
        found = Sessions(sides, self._sides, self._windows.gap_ms)
        has_new = np.zeros(len(found.due), dtype=bool)
        if new is not None:
            own = found.numbers[new[0]]
            has_new[own[len(own) - len(new[1]) :]] = True
        is_over = found.due + self._windows.lateness_ms <= watermark_ms
        is_late = is_over & has_new
        fires = (found.due <= watermark_ms) & ((found.due > fired_ms) | has_new) & ~is_late
        if is_late.any():  # all of its rows are new: what is over is not held
            assert new is not None
            until_ms = int(found.due[is_late].min()) + self._windows.lateness_ms
            self._late(new[0], found.rows(new[0], is_late), how_late(watermark_ms, until_ms))
        if fires.any():
            self._fire_sessions(found, fires)
        if new is not None or is_over.any():
            self._rows.take(WHOLE, groups)
            for side in (0, 1):
                kept = found.rows(side, ~is_over)
                if kept is not None and len(kept):
                    self._rows.add(side, WHOLE, kept)
        dues = np.where(found.due > watermark_ms, found.due, found.due + self._windows.lateness_ms)
        return int(dues[~is_over].min(initial=_NEVER))

    def _fire_sessions(self, found: "Sessions", fires: Numbers) -> None:
        left, right = (found.rows(side, fires) for side in (0, 1))
        if left is None or right is None:
            return
        numbers = [each[fires[each]] for each in found.numbers]
        pair = numbers[0], numbers[1]
        self._fire(MatchedRows(left, right, pair, pair, found.first, found.due + 1))


_NEVER: Final = 2**63 - 1


class Sessions:
    """The sessions among rows of both sides."""

    def __init__(
        self,
        sides: tuple[list[pa.RecordBatch], list[pa.RecordBatch]],
        specs: Sequence[JoinSide],
        gap_ms: int,
    ) -> None:
        self._batches = [_table(batches, spec) for batches, spec in zip(sides, specs, strict=True)]
        there = [
            (batch, spec)
            for batch, spec in zip(self._batches, specs, strict=True)
            if batch is not None
        ]
        codes = np.concatenate(
            key_numbers([[key_column(batch, name) for name in spec.keys] for batch, spec in there])
        )
        times = np.concatenate([spec.time.of(batch) for batch, spec in there])
        order, is_first = session_begins(codes, times, gap_ms)
        times = times[order]
        begins = np.flatnonzero(is_first)
        self.first = times[begins]
        """When each session begins."""
        self.due = times[np.append(begins[1:], len(order)) - 1] + gap_ms - 1
        """The last millisecond of each session."""
        numbers = np.empty(len(order), dtype=np.int64)
        numbers[order] = is_first.cumsum() - 1
        sizes = [0 if batch is None else len(batch) for batch in self._batches]
        self.numbers = np.split(numbers, [sizes[0]])
        """For each side: the session of each row."""

    def rows(self, side: int, wanted: Numbers) -> pa.RecordBatch | None:
        """The rows of some sessions; None: of that side nothing is known."""
        batch = self._batches[side]
        some = wanted[self.numbers[side]]
        return batch if batch is None or some.all() else batch.filter(pa.array(some))
