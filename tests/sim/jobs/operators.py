"""Operators of simulated jobs beside users' functions: event time, timers, selection, a watch.

Those that keep something have it in their state, so that jobs can be restored at any moment.
"""

import pickle
from collections.abc import Collection
from random import Random
from typing import Final

from headgate.base.elements import (
    MAX_WATERMARK_MS,
    Bundle,
    LatencyMarker,
    Record,
    StreamStatus,
    Watermark,
)
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.operator import Operator
from headgate.core.chain.snapshots import OperatorSnapshot
from headgate.core.chain.watermarks import Bounded, Marking, TimePlan
from headgate.core.operators.timestamps import TimestampsOperator
from headgate.core.operators.two_inputs import CoMapOperator
from headgate.functions.context import RuntimeContext, SnapshotMoment
from tests.sim.jobs.functions import Run

IDLE_MS: Final = 3.0
TICK_MS: Final = 5
ATTEMPT_MS: Final = 1_000_000
"""Between the event times that two attempts begin with."""


class Placed(Operator):
    """Base: knows its place, and that it is closed once."""

    def __init__(self, run: Run, node: int) -> None:
        self._run = run
        self._node = node

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self.where = f"{self._node}.{context.task.subtask}"
        self._random = Random(f"{self.where} {self._run.seed}")
        self._run.observations.opened[self.where] += 1

    def close(self) -> None:
        where = getattr(self, "where", "")
        if where:
            self._run.observations.closed[where] += 1


class Stamper(Placed):
    """Behind a source: gives event times, watermarks, and (if it may) idleness."""

    def __init__(self, run: Run, node: int, idles: bool) -> None:
        super().__init__(run, node)
        self._idles = idles
        self._time = 0
        self._active = True

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        if context.restored is not None:
            left = [pickle.loads(state) for state in context.restored.plain if state is not None]
            self._time = max(left, default=0)

    def snapshot(self, moment: SnapshotMoment) -> OperatorSnapshot:
        return OperatorSnapshot(plain=pickle.dumps(self._time))

    def process(self, bundle: Bundle, number: int) -> None:
        self._become(active=True)
        times: list[int | None] = []
        for _ in bundle.records:
            self._time += 1
            times.append(self._time)
        self.output.collect(Bundle(bundle.records, times))
        if self._random.random() < 0.3:
            self.output.emit_watermark(Watermark(self._time))
        if self._idles and self._random.random() < 0.2:
            self._become(active=False)
            self.context.later(IDLE_MS * self._random.random(), lambda: self._become(active=True))

    def watermark_advanced(self, watermark: Watermark) -> None:
        self._become(active=True)
        super().watermark_advanced(watermark)

    def _become(self, *, active: bool) -> None:
        if active != self._active:
            self._active = active
            self.output.emit_status(StreamStatus(active))


def stamper(run: Run, node: int, idles: bool) -> Operator:
    """Behind a source; one in two is the operator of watermark strategies, with a clock."""
    if (node + run.seed) % 2:
        return Stamper(run, node, idles)
    idle_ms = int(IDLE_MS) if idles else None
    assigner = Counted(ATTEMPT_MS * run.attempt)
    return TimestampsOperator(TimePlan(_rising, assigner, idle_ms, interval_ms=TICK_MS))


class Counted:
    """An assigner of timestamps: 1, 2, 3 … after ``since``."""

    def __init__(self, since: int) -> None:
        self._time = since

    def extract_timestamp(self, value: Record, record_timestamp: int) -> int:
        self._time += 1
        return self._time


def _rising(context: RuntimeContext) -> Marking:
    return Bounded(0)


class Keeper(Placed):
    """Keeps records back until a timer, a watermark or the end sends them on.

    Half of them send everything before a barrier, the others have it in their state.
    """

    def __init__(self, run: Run, node: int) -> None:
        super().__init__(run, node)
        self._kept: list[Bundle] = []
        self._timer = False

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        left = () if context.restored is None else context.restored.plain
        task = context.task
        for old, state in enumerate(left):
            if state is not None and old % task.parallelism == task.subtask:
                self._kept += [Bundle(*fields) for fields in pickle.loads(state)]
        if self._kept:
            self._await_timer()

    def process(self, bundle: Bundle, number: int) -> None:
        self._kept.append(bundle)
        self._await_timer()

    def before_barrier(self, moment: SnapshotMoment) -> None:
        if self._node % 2:
            self._send()

    def snapshot(self, moment: SnapshotMoment) -> OperatorSnapshot:
        kept = [(bundle.records, bundle.timestamps) for bundle in self._kept]
        return OperatorSnapshot(plain=pickle.dumps(kept) if kept else None)

    def _await_timer(self) -> None:
        if not self._timer:
            self._timer = True
            self.context.later(self._random.choice((0.0, 1.0, 20.0)), self._due)

    def watermark_advanced(self, watermark: Watermark) -> None:
        self._send()
        super().watermark_advanced(watermark)

    def finish(self) -> None:
        self._send()

    def _due(self) -> None:
        self._timer = False
        self._send()

    def _send(self) -> None:
        kept, self._kept = self._kept, []
        for bundle in kept:
            self.output.collect(bundle)


class Watcher(Placed):
    """Looks at event time: it never goes back, nothing comes late, and it ends at the end."""

    def __init__(self, run: Run, node: int, strict: bool) -> None:
        super().__init__(run, node)
        self._strict = strict
        self._ended = False

    def process(self, bundle: Bundle, number: int) -> None:
        observations = self._run.observations
        if self._ended:
            observations.problems.append(f"{self.where}: records came after the end of its input")
        if self._strict:
            for timestamp in bundle.timestamps or ():
                observations.time_seen(self.where, timestamp)
        self.output.collect(bundle)

    def watermark_advanced(self, watermark: Watermark) -> None:
        self._run.observations.watermark_seen(self.where, watermark.timestamp_ms)
        super().watermark_advanced(watermark)

    def marker_received(self, marker: LatencyMarker) -> None:
        if marker.marked_ms > self.context.now_ms():
            self._run.observations.problems.append(f"{self.where}: a marker of the future")
        super().marker_received(marker)

    def end_input(self, number: int) -> None:
        if self._ended:
            self._run.observations.problems.append(f"{self.where}: its input ended twice")
        self._ended = True

    def finish(self) -> None:
        reached = self._run.observations.watermarks.get(self.where)
        if reached != MAX_WATERMARK_MS:
            self._run.observations.problems.append(f"{self.where}: ended with event time {reached}")


class OneAfterTheOther(CoMapOperator):
    """Reads its second input only when the first has ended."""

    def __init__(self, function: object, first: int) -> None:
        super().__init__(function)
        self._first = first
        self._ended = False

    def selection(self) -> Collection[int] | None:
        return None if self._ended else (self._first,)

    def process(self, bundle: Bundle, number: int) -> None:
        assert self._ended or number == self._first, "an input was read that was not selected"
        super().process(bundle, number)

    def end_input(self, number: int) -> None:
        super().end_input(number)
        self._ended = self._ended or number == self._first


def key_of(record: Record) -> int:
    """The key of a record."""
    return record[0]  # type: ignore[no-any-return]
