"""Tumbling and sliding windows, whole bundles at a time: no timers by key, no trigger objects.

Time is cut into *panes*, the stretches in which all timestamps have the same windows. A bundle's
records are sorted into their panes and folded into the dictionaries of their windows, which are the
backend's own. In processing time all records of a bundle belong to the moment at which it came, and
one mail at a time tells when the next window is over. Law: the results are those of the general
keeper. Windows that have fired and are kept for late records are another state than those that have
not, so that a restored operator can tell them apart.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import repeat
from math import gcd
from typing import TypeVar, cast

from headgate.base.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS, Bundle, Key, Record
from headgate.base.values import own
from headgate.core.chain.operator import Output
from headgate.core.chain.user_function import PIECE
from headgate.core.state.backend import KeyedBackend, StateSpec
from headgate.core.state.cursor import Namespace
from headgate.core.state.tables import Entries, Spaces
from headgate.core.window.contents import in_each_window, make_fold
from headgate.core.window.general import Parts
from headgate.core.window.spec import FIRED, OPEN, WindowPlan
from headgate.core.window.user_code import NO_TIMESTAMP
from headgate.functions.assigners import (
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    slides,
)
from headgate.functions.context import TimeDomain
from headgate.functions.triggers import EventTimeTrigger, ProcessingTimeTrigger
from headgate.functions.window import TimeWindow

T = TypeVar("T")


def can_slice(plan: WindowPlan, backend: KeyedBackend) -> bool:
    """Whether these windows can be kept so, in this backend."""
    assigner = plan.assigner
    return (
        type(assigner) in (TumblingEventTimeWindows, SlidingEventTimeWindows)
        and getattr(assigner, "slide_ms", 0) <= assigner.size_ms  # type: ignore[attr-defined]
        and type(plan.trigger) is EventTimeTrigger
        and plan.evictor is None
        and backend.direct(OPEN) is not None
    )


def can_clock(plan: WindowPlan, backend: KeyedBackend) -> bool:
    """Whether these windows can be kept so, in this backend."""
    return (
        not plan.batch  # there, windows fire with their key's timers
        and type(plan.assigner) in (TumblingProcessingTimeWindows, SlidingProcessingTimeWindows)
        and type(plan.trigger) is ProcessingTimeTrigger
        and plan.evictor is None
        and backend.direct(OPEN) is not None
    )


class SlicedKeeper:
    """Keeps windows of event time."""

    def __init__(self, parts: Parts, output: Output) -> None:
        assigner = parts.plan.assigner
        assert isinstance(
            assigner,
            TumblingEventTimeWindows
            | SlidingEventTimeWindows
            | TumblingProcessingTimeWindows
            | SlidingProcessingTimeWindows,
        )
        self._assigner = assigner
        self._size_ms = assigner.size_ms
        self._slide_ms: int = getattr(assigner, "slide_ms", assigner.size_ms)
        self._offset_ms = assigner.offset_ms
        self._pane_ms = gcd(self._size_ms, self._slide_ms)
        self._lateness_ms = parts.plan.lateness_ms
        self._cursor = parts.keyed.cursor
        self._timers = parts.keyed.timers
        self._answers = parts.answers
        self._late = parts.late
        self._copies = not parts.reuses_objects
        self._output = output
        self._fold = make_fold(parts.plan.contents, self._copies)
        self._open = _spaces(parts.keyed.backend, OPEN)
        self._fired = _spaces(parts.keyed.backend, FIRED)
        self._due: list[tuple[int, TimeWindow]] = []
        """A heap: when windows fire, and when those that have fired are over."""
        self._restored: dict[Namespace, None] = {}
        """Windows that had fired before event time began anew, and has not come to them again."""
        self._is_looked_up = False

    def process(self, bundle: Bundle, keys: list[Key]) -> None:
        if not self._is_looked_up:
            self._look_up()
        times = bundle.timestamps
        try:
            first_ms = min(times)  # type: ignore[arg-type, type-var]
        except TypeError:
            first_ms = None
        if times is None or first_ms is None or first_ms == MIN_WATERMARK_MS:
            raise ValueError(NO_TIMESTAMP.format(assigner=self._assigner))
        self._cursor.key = keys[-1]
        records, stamps = bundle.records, cast(list[int], times)
        if self._first_end(first_ms) <= self._timers.watermark_ms + 1 or self._restored:
            self._process_each(records, keys, stamps)
        elif self._size_ms == self._slide_ms:
            entries = self._spread(_Panes(self.entries_from), stamps, first_ms)
            self._fold.add_all(zip(records, keys, entries))  # noqa: B905 - may have no end
        else:
            several = self._spread(_Panes(self.entries_of_pane), stamps, first_ms)
            self._fold.add_all(in_each_window(records, keys, several, self._copies))

    def advance(self, watermark_ms: int) -> None:
        if not self._is_looked_up:
            self._look_up()
        self._timers.watermark_advanced(watermark_ms)
        due = self._due
        while due and due[0][0] <= watermark_ms:
            time_ms, window = heapq.heappop(due)
            if time_ms == window.end - 1 and window in self._open.by_namespace:
                self._fire(window)
            else:
                self._end(window)

    def fire(self, time_ms: int, domain: TimeDomain) -> None:
        raise AssertionError("windows in slices have no timers")

    def close(self) -> None:
        """The keyed context is the operator's."""

    def _look_up(self) -> None:
        """Which windows there are, after a restart; state is there when the first element comes."""
        self._is_looked_up = True
        for window in _windows(self._open):
            heapq.heappush(self._due, (window.end - 1, window))
        for window in _windows(self._fired):
            if window.end - 1 > self._timers.watermark_ms:
                self._restored[window] = None
            self._await_end(window)

    def _first_end(self, time_ms: int) -> int:
        """The end of the window that ends first among those that hold this time, or could."""
        before = time_ms - self._size_ms
        return before + self._slide_ms - (before - self._offset_ms) % self._slide_ms + self._size_ms

    def _spread(self, panes: dict[int, T], times: list[int], first_ms: int) -> Iterable[T]:
        """For each timestamp what its pane has."""
        offset, size = self._offset_ms, self._pane_ms
        first = first_ms - (first_ms - offset) % size
        if max(times) < first + size:
            return repeat(panes[first])
        return [panes[time_ms - (time_ms - offset) % size] for time_ms in times]

    def entries_of_pane(self, pane: int) -> tuple[Entries, ...]:
        """Entries of all windows that hold this time."""
        windows = slides(pane, self._size_ms, self._slide_ms, self._offset_ms)
        return tuple([self._entries(window) for window in windows])

    def entries_from(self, start: int) -> Entries:
        """Entries of the window that begins here."""
        return self._entries(TimeWindow(start, start + self._size_ms))

    def _entries(self, window: TimeWindow) -> Entries:
        entries = self._open.view.get(window)
        if entries is None:
            entries = self._open.view[window] = {}
            heapq.heappush(self._due, (window.end - 1, window))
        return entries

    def _process_each(self, records: list[Record], keys: list[Key], times: list[int]) -> None:
        """One by one: some may be late, or fire a window again."""
        watermark_ms, lateness_ms = self._timers.watermark_ms, self._lateness_ms
        for record, key, time_ms in zip(records, keys, times, strict=True):
            windows = slides(time_ms, self._size_ms, self._slide_ms, self._offset_ms)
            taking = [w for w in windows if w.end - 1 + lateness_ms > watermark_ms]
            for window in taking:
                is_shared = self._copies and window is not taking[-1]
                mine = own(record) if is_shared else record
                if window.end - 1 <= watermark_ms:
                    self._add_late(mine, key, window)
                else:
                    self._add(mine, key, window)
            if not taking and time_ms + lateness_ms <= watermark_ms:
                last_ms = windows[0].end - 1 if windows else time_ms
                self._late.take(record, time_ms, last_ms + lateness_ms)

    def _add(self, record: Record, key: Key, window: TimeWindow) -> None:
        entries = self._entries(window)
        if window in self._restored and key in self._fired.view[window]:
            entries[key] = self._fired.view[window].pop(key)
        self._fold.add_all([(record, key, entries)])

    def _add_late(self, record: Record, key: Key, window: TimeWindow) -> None:
        """Into a window that has fired, or would have: it fires again for this key, at once."""
        entries = self._fired.view.get(window)
        if entries is None:
            entries = self._fired.view[window] = {}
            self._await_end(window)
        self._fold.add_all([(record, key, entries)])
        self._send(window, {key: entries[key]})

    def _fire(self, window: TimeWindow) -> None:
        """The watermark has reached its end."""
        entries = self._open.view.pop(window)
        self._send(window, entries, ends=self._lateness_ms == 0)
        if self._lateness_ms:
            kept = self._fired.view.get(window)
            if kept is None:
                self._fired.view[window] = entries
                self._await_end(window)
            else:
                kept.update(entries)

    def _end(self, window: TimeWindow) -> None:
        """It takes no late records any more."""
        self._restored.pop(window, None)
        entries = self._fired.view.pop(window, None)
        if entries is not None and self._answers.clears:
            cursor = self._cursor
            for cursor.key in entries:
                cursor.namespace = window
                self._answers.ended(window)
            cursor.namespace = None

    def _await_end(self, window: TimeWindow) -> None:
        over_ms = window.end - 1 + self._lateness_ms
        if over_ms < MAX_WATERMARK_MS:
            heapq.heappush(self._due, (over_ms, window))

    def _send(self, window: TimeWindow, entries: Entries, ends: bool = False) -> None:
        """The answer of a window for these keys. ``ends``: and nothing of it is kept."""
        if self._answers.user_function is None:
            last_ms, values = window.end - 1, list(entries.values())
            keys = list(entries) if self._answers.tolerates else []
            for start in range(0, len(values), PIECE):
                failed = None
                if self._answers.tolerates:
                    failed = partial(self._failed, window, keys[start : start + PIECE])
                results = self._fold.answers(values[start : start + PIECE], failed)
                if results:
                    self._output.collect(Bundle(results, [last_ms] * len(results)))
            return
        cursor, answers, answer = self._cursor, self._answers, self._fold.answer
        for key, value in entries.items():
            cursor.key, cursor.namespace = key, window
            try:
                contents = answer(value)
            except Exception as error:
                answers.failed(error, window)
                contents = None
            if contents is not None:
                answers.send(window, contents)
            if ends:
                answers.ended(window)
        cursor.namespace = None

    def _failed(self, window: TimeWindow, keys: list[Key], place: int, error: Exception) -> None:
        """The value of a key could not be made an answer."""
        self._cursor.key = keys[place]
        self._answers.failed(error, window)


class ClockKeeper(SlicedKeeper):
    """Keeps windows of processing time."""

    def __init__(self, parts: Parts, output: Output) -> None:
        super().__init__(parts, output)
        self._lateness_ms = 0
        self._context = parts.context
        self._awaited_ms: int | None = None
        """When the mail comes that is on its way; None: none is."""
        self._closed = False
        if (
            len(self._open.by_namespace) > 1
        ):  # beside the namespace None: windows from before a restart
            self._look_up()
            self._await_next()

    def process(self, bundle: Bundle, keys: list[Key]) -> None:
        now_ms = self._context.now_ms()
        pane = now_ms - (now_ms - self._offset_ms) % self._pane_ms
        self._cursor.key = keys[-1]
        if self._size_ms == self._slide_ms:
            entries = repeat(self.entries_from(pane))
            self._fold.add_all(zip(bundle.records, keys, entries))  # noqa: B905 - has no end
        else:
            several = repeat(self.entries_of_pane(pane))
            self._fold.add_all(in_each_window(bundle.records, keys, several, self._copies))
        self._await_next()

    def advance(self, watermark_ms: int) -> None:
        self._timers.watermark_advanced(watermark_ms)

    def close(self) -> None:
        self._closed = True

    def _await_next(self) -> None:
        if self._due and (self._awaited_ms is None or self._due[0][0] < self._awaited_ms):
            self._awaited_ms = self._due[0][0]
            delay_ms = max(0, self._awaited_ms + 1 - self._context.now_ms())
            self._context.later(delay_ms, partial(self._fire_over, self._awaited_ms))

    def _fire_over(self, awaited_ms: int) -> None:
        """Fire what is over; called as a mail, perhaps a little early."""
        if self._closed or awaited_ms != self._awaited_ms:
            return
        self._awaited_ms = None
        now_ms = self._context.now_ms()
        while self._due and self._due[0][0] < now_ms:
            _, window = heapq.heappop(self._due)
            if window in self._open.by_namespace:
                self._fire(window)
        self._answers.flush()
        self._await_next()


class _Panes(dict[int, T]):
    """The entries of each pane of a bundle, looked up once: a snapshot may replace them later."""

    def __init__(self, look_up: Callable[[int], T]) -> None:
        self._look_up = look_up

    def __missing__(self, start: int) -> T:
        self[start] = entries = self._look_up(start)
        return entries


def _spaces(backend: KeyedBackend, spec: StateSpec) -> Spaces:
    spaces = backend.direct(spec)
    assert spaces is not None
    return spaces


def _windows(spaces: Spaces) -> Iterator[TimeWindow]:
    for window in spaces.by_namespace:
        if isinstance(window, TimeWindow):
            yield window
