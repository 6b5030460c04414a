"""The source operator: reads the splits of its task in turn and sends what they give.

Law: it never blocks, and a split that has nothing now does not delay the others. Each split has its
own event time; the minimum goes out and never goes back. A split counts from the start, so that a
split that is read late brings no late records; it does not count while it is idle or after its end.
So do splits that the driver has and assigns later. Once all splits are idle, or have ended and
others may come, the furthest counts; at the end the largest watermark goes out. A split too far
ahead of its alignment group is not read. A restored source continues from its positions and its
event time. It is polled again at the latest when a split is to be marked idle.
"""

import math
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from operator import index
from typing import Final

from headgate.base.elements import (
    MAX_WATERMARK_MS,
    Bundle,
    StreamStatus,
    Watermark,
)
from headgate.base.errors import StateBroken
from headgate.base.messages import ForSources, SourceTimeAnnounced, SplitsAssigned, TimeAnnounced
from headgate.base.values import own
from headgate.core.chain.context import OperatorContext, OperatorRuntimeContext
from headgate.core.chain.emission import is_immutable
from headgate.core.chain.operator import PolledOperator, PollResult
from headgate.core.chain.outputs import trail_from
from headgate.core.chain.snapshots import OperatorSnapshot
from headgate.core.chain.watermarks import OWN_TIME, Marking, Stamper, TimePlan
from headgate.core.loops.steps import Step
from headgate.core.operators.source_splits import (
    AssignedSplits,
    FinishedSplits,
    IdentifiedSplit,
    SplitProgress,
    assign_splits,
    identify_splits,
    marks_of,
    unpickled,
    was_listed,
    write_splits,
)
from headgate.core.operators.source_time import (
    SharedTime,
    SourceAlignment,
    SplitWatermark,
    SplitWatermarks,
)
from headgate.functions.context import SnapshotMoment
from headgate.functions.source import (
    Position,
    Source,
    SplitLag,
    SplitReader,
    nothing_left,
    sum_lags,
)

POLL_RECORDS: Final = 1024

LAG_MS: Final = 5.0
"""For so long splits are asked what is left of them; the others have their turn the next time."""


@dataclass(slots=True, eq=False)
class _Split:
    number: int
    """Among the splits of the run; -1: it comes from an earlier one."""
    reader: SplitReader
    marking: Marking
    share: SplitWatermark
    quiet_since_ms: int | None = None
    """It has had nothing since then."""
    is_idle: bool = False
    """It was marked idle, having had nothing for long."""
    identity: IdentifiedSplit | None = None
    """None before the first checkpoint."""
    has_given: bool = False
    lag: SplitLag | None = None
    """As its reader has told; None: it does not know, or was not asked."""

    @property
    def reached_ms(self) -> int:
        """Its event time, emitted or not."""
        return max(self.marking.current_ms, self.share.watermark_ms)


class SourceOperator(PolledOperator):
    """``splits`` holds the splits of all tasks; each task takes its share.

    ``assigned``: there are none, for the driver assigns them while the task runs. ``listed``: that
    has them from ``splits``, not from an enumerator: they may be old data that is cut anew.
    """

    def __init__(
        self,
        source: Source,
        splits: tuple[object, ...],
        plan: TimePlan = OWN_TIME,
        assigned: bool = False,
        listed: bool = False,
    ) -> None:
        self._source = source
        self._is_assigned = assigned
        self._is_listed = listed
        self._assigned: AssignedSplits | None = None
        self._finished = FinishedSplits(source)
        self._shared: SharedTime | None = None
        """Event time together with the other tasks; None: each task has its own."""
        self._unbegun: SplitWatermark | None = None
        """Holds event time back for splits that are assigned later; None: nothing does."""
        self._unopened: list[SplitProgress] = []
        """Splits that the run before had been assigned and had not begun."""
        self._are_quiet = False
        """The last poll found nothing in any split that it may read."""
        self._ends = source.splits_end
        self._all_splits = splits
        self._plan = plan
        self._stamper = Stamper(plan.assigner)
        self._first_step: Sequence[Step] | None = None
        """What follows, if that is a map or a filter that only reads; None: nobody has looked."""
        self._splits: deque[_Split] = deque()
        self._alignment: SourceAlignment | None = None
        self._over = False
        self._known: bytes | None = None
        """The marks of all splits that any run has known; None: not computed yet."""
        self._is_restored = False
        self._lag: SplitLag | None = None
        self._asked = 0  # splits, for what is left of them
        self.wait_ms = 0.0
        """After NOTHING: when to poll again at the latest."""
        self.descriptors: list[int] = []
        """After NOTHING: when one of these is readable, sooner."""

    def open(self, context: OperatorContext) -> None:
        self._streak = None if self.failures is None else self.failures.streak()
        self._unread = None if self.failures is None else self.failures.streak()
        if self._unread is not None:
            context = replace(context, malformed=self._unread.malformed)
        super().open(context)
        self._times = SplitWatermarks(self.output)
        plan = self._plan
        if context.restored is not None and any(
            state is not None for state in context.restored.source
        ):
            self._restore(context.restored.source)
        elif not self._is_assigned:
            task = context.task
            for number in range(task.subtask, len(self._all_splits), task.parallelism):
                self._open_split(self._all_splits[number], number)
        if self._is_assigned:
            self._begin_assigned()
        if plan.interval_ms:
            context.later(plan.interval_ms, self._tick)
        if plan.alignment is not None:
            self._alignment = SourceAlignment(plan.alignment, context, self._least_ms)

    def poll(self, limit: int = POLL_RECORDS) -> PollResult:
        """Send on what the next split that has something gives."""
        shared = self._shared
        if shared is None:
            return self._poll(limit)
        shared.follow()
        polled = self._poll(limit)
        shared.report()
        return polled

    def _poll(self, limit: int) -> PollResult:
        splits, alignment = self._splits, self._alignment
        if self._is_restored:
            self._is_restored = False
            self._times.advance()
        wait_ms, paused = inf, 0
        self.descriptors = []
        if self._assigned is not None:
            self._open_assigned(self._assigned)
        for _ in range(len(splits)):
            split = splits[0]
            if alignment is not None and split.reached_ms > alignment.limit_ms:
                paused += 1
                splits.rotate(-1)
                continue
            found = split.reader.poll(limit)
            if found is None:
                self._end_split()
                wait_ms = 0.0
            elif self._take(split, found):
                self._are_quiet = False
                return PollResult.RECORDS
            else:
                wait_ms = min(wait_ms, self._wait_of(split))
                splits.rotate(-1)
        self._are_quiet = True
        if self._assigned is not None:
            wait_ms = min(wait_ms, self._request_more(self._assigned, paused))
        self.wait_ms = wait_ms
        if paused and paused == len(splits) and wait_ms > 0 and alignment is not None:
            alignment.paused()
            return PollResult.PAUSED
        has_ended = self._assigned is None or self._assigned.has_ended
        return PollResult.ENDED if has_ended and not splits else PollResult.NOTHING

    def obey(self, order: ForSources) -> None:
        """The driver has splits for the task, or knows how far others are."""
        match order:
            case SplitsAssigned(_, _, splits, backlog, no_more) if self._assigned is not None:
                self._assigned.assigned(splits, backlog, no_more)
                self._hold_back(self._assigned)
            case SourceTimeAnnounced() if self._shared is not None:
                self._shared.announced(order)
            case TimeAnnounced(_, group, watermark_ms) if self._alignment is not None:
                self._alignment.announced(group, watermark_ms)
            case _:
                pass

    @property
    def splits(self) -> int:
        waiting = 0 if self._assigned is None else len(self._assigned.waiting)
        return len(self._splits) + waiting

    @property
    def records_per_second(self) -> float | None:
        found: object = self._source.records_per_second  # a user's may mean anything
        if isinstance(found, bool) or not isinstance(found, int | float):
            return None
        return float(found) if 0 < found < math.inf else None

    def lag(self) -> SplitLag | None:
        """Over all splits. Of many some are asked at a time, always the one that is being read."""
        splits = list(self._splits)
        if not splits:
            return None if self._lag is None else nothing_left(self._lag)
        elapsed_ms = self.context.elapsed_ms
        until_ms = elapsed_ms() + LAG_MS
        first = self._asked % len(splits)
        for split in dict.fromkeys([splits[0], *splits[first:], *splits[:first]]):
            split.lag = split.reader.lag()
            self._asked += 1
            if elapsed_ms() > until_ms:
                break
        unopened: list[SplitLag | None] = [None] * (self.splits - len(splits))
        self._lag = sum_lags([*(split.lag for split in splits), *unopened])
        return self._lag

    def finish(self) -> None:
        self._end_time()
        self._times.target.emit_watermark(MAX_WATERMARK_MS)

    def snapshot(self, moment: SnapshotMoment) -> OperatorSnapshot:
        if self._known is None and not self._is_assigned:
            self._identify_all()
        progress = [
            SplitProgress(split.identity, self._position(split, moment), split.share.watermark_ms)
            for split in self._splits
            if split.identity is not None
        ]
        assert len(progress) == len(self._splits), "a split has no mark"
        if self._assigned is not None:
            progress += self._assigned.waiting
        progress += self._finished.uncovered
        self._finished.snapshot(moment)
        return OperatorSnapshot(source=write_splits(progress, self._known or b""))

    def checkpoint_completed(self, checkpoint: int) -> None:
        self._finished.completed(checkpoint)
        for split in self._splits:
            split.reader.checkpoint_completed(checkpoint)

    def close(self) -> None:
        self._end_time()
        if self._alignment is not None:
            self._alignment.close()
        with ExitStack() as last:  # close all, whatever one raises
            while self._splits:
                last.callback(self._splits.popleft().reader.close)

    def _open_split(self, split: object, number: int, position: Position = None) -> _Split:
        reader = self._source.open(split, position, self.context)
        if not isinstance(reader, SplitReader):
            raise TypeError(
                f"open() of {type(self._source).__name__} returned {reader!r}; return a reader "
                f"whose class is derived from SplitReader"
            )
        try:
            marking = self._plan.start(OperatorRuntimeContext(self.context))
        except BaseException:
            reader.close()
            raise
        self._splits.append(_Split(number, reader, marking, self._times.add()))
        return self._splits[-1]

    # Splits that the driver assigns.

    def _begin_assigned(self) -> None:
        context = self.context
        self._assigned = assigned = AssignedSplits(
            context.want_splits,
            context.elapsed_ms,
            by_demand=self._ends,
            bounded=self._source.bounded,
            known=marks_of(self._known or b""),
        )
        assigned.waiting += self._unopened
        if not self._source.bounded:
            idle_ms = self._plan.idle_ms
            self._shared = SharedTime(self._times, context, lambda: assigned.received, idle_ms)
        self._hold_back(assigned)
        assigned.open(self.splits)

    def _open_assigned(self, assigned: AssignedSplits) -> None:
        """Splits that end are opened one by one, others at once."""
        self._check_cut(assigned)
        while assigned.waiting and (not self._ends or not self._splits or self._are_quiet):
            progress = assigned.waiting.popleft()
            split = unpickled(progress.split.data, "a split")
            if progress.position is None and was_listed(self._source, split, self._known or b""):
                self._pass_over([split])
                continue
            self._reopen(replace(progress, split=replace(progress.split, split=split)))
            self._are_quiet = False
        self._hold_back(assigned)
        if self._unbegun is not None and not assigned.holds_back:
            unbegun, self._unbegun = self._unbegun, None
            self._times.ended(unbegun)

    def _hold_back(self, assigned: AssignedSplits) -> None:
        """Event time waits for splits that were not begun, here or in the driver."""
        if assigned.holds_back and self._unbegun is None:
            self._unbegun = self._times.add()

    def _request_more(self, assigned: AssignedSplits, paused: int) -> float:
        """No split had anything; returns when to poll again at the latest.

        A split that waits may be read while others are paused; no other one is asked for.
        """
        look_ms = assigned.look(len(self._splits), all_quiet=not paused)
        if assigned.waiting:
            return 0.0
        return look_ms

    def _check_cut(self, assigned: AssignedSplits) -> None:
        """Pass over what an earlier run has read; refuse other splits in its place.

        As ``assign_splits`` does it, but that which splits are gone is not known here. What an
        enumerator finds is new data.
        """
        if assigned.passed_over:
            passed_over, assigned.passed_over = assigned.passed_over, []
            self._pass_over([unpickled(split.data, "a split") for split in passed_over])
        if not (self._is_listed and assigned.is_mixed):
            return
        before = 0 if self.context.restored is None else len(self.context.restored.source)
        now = self.context.task.parallelism
        if self._source.finds_more is None and before != now:
            raise StateBroken(
                f"the source has other splits than before, and there were {before} tasks and are "
                f"{now} now; set finds_more = True on the source if the new ones are new data, "
                f"finds_more = False if splits() cuts the same data anew"
            )

    def _pass_over(self, splits: Sequence[object]) -> None:
        for finished in splits:
            self._source.passed_over(finished)

    # Checkpoints.

    def _restore(self, states: tuple[bytes | None, ...]) -> None:
        task = self.context.task
        finds_more = False if self._is_assigned else self._source.finds_more
        splits = identify_splits(self._all_splits)
        assigned = assign_splits(states, splits, task.subtask, task.parallelism, finds_more)
        self._pass_over(assigned.passed_over)
        for progress in assigned.splits:
            if self._is_assigned and self._ends and progress.position is None:
                self._unopened.append(progress)
            else:
                self._reopen(progress)
        self._known = assigned.known
        self._is_restored = True

    def _reopen(self, progress: SplitProgress) -> None:
        split = self._open_split(progress.split.split, -1, progress.position)
        split.identity, split.share.watermark_ms = progress.split, progress.watermark_ms

    def _identify_all(self) -> None:
        """Not in ``open``: most bounded jobs take no checkpoint, and splits may be many."""
        identified = identify_splits(self._all_splits)
        for split in self._splits:
            split.identity = identified[split.number]
        self._known = b"".join(split.mark for split in identified)

    def _position(self, split: _Split, moment: SnapshotMoment) -> Position:
        position = split.reader.position_at(moment)
        if position is None and split.has_given and self._source.rewinds:
            raise RuntimeError(
                f"{type(split.reader).__name__} has given records and tells no position, so that "
                f"they would come again after a restore; implement position(), or set "
                f"rewinds = False on {type(self._source).__name__}"
            )
        return position

    def _take(self, split: _Split, found: object) -> bool:
        """Send on what a poll brought; False: that was nothing."""
        if isinstance(found, Watermark | StreamStatus):
            self._take_own(split, found)
            return True
        copies = not self.reuses_objects and not split.reader.gives_away
        if isinstance(found, Bundle):
            bundle = found
        elif copies and not isinstance(found, list):
            bundle = Bundle([own(record) for record in found])  # type: ignore[attr-defined]
        else:
            bundle = Bundle(list(found))  # type: ignore[call-overload]
        if not bundle.records:
            self._stay_quiet(split)
            return False
        if not self._ends:
            self._splits.rotate(-1)  # splits that end are read one after the other
        if copies and not self._is_only_read() and not is_immutable(bundle):
            bundle = Bundle([own(record) for record in bundle.records], bundle.timestamps)
        split.quiet_since_ms, split.is_idle, split.has_given = None, False, True
        if self._unread is not None:
            self._unread.passed()
        stamped = self._stamper.stamped(bundle, self._streak)
        if stamped.records:
            split.marking.passed(stamped, split.share)
        return True

    def _is_only_read(self) -> bool:
        """Whether what follows neither keeps nor changes records, and makes others of them."""
        if self._first_step is None:
            reads_times = self._plan.assigner is not None
            self._first_step = () if reads_times else trail_from(self.output).steps[:1]
        return bool(self._first_step) and self._first_step[0].holds()

    def _take_own(self, split: _Split, found: Watermark | StreamStatus) -> None:
        """Watermarks and statuses of the source itself count if no strategy makes them."""
        if not self._plan.keeps_own:
            return
        if isinstance(found, Watermark):
            split.share.emit_watermark(found.timestamp_ms)
        elif found.active:
            split.share.mark_active()
        else:
            split.share.mark_idle()

    def _wait_of(self, split: _Split) -> float:
        """When a split that had nothing is to be polled again; notes its descriptor."""
        reader, wait_ms = split.reader, split.reader.wait_ms()
        if wait_ms != wait_ms:  # NaN would confuse every timer of the worker
            raise ValueError(
                f"wait_ms() of {type(reader).__name__} returned nan; return milliseconds, or "
                f"math.inf"
            )
        descriptor = reader.fileno()
        if descriptor is not None:
            self.descriptors.append(index(descriptor))
        if (
            self._plan.idle_ms is not None
            and split.quiet_since_ms is not None
            and not split.is_idle
        ):
            quiet_ms = self.context.now_ms() - split.quiet_since_ms
            wait_ms = min(wait_ms, max(1, self._plan.idle_ms - quiet_ms))
        return wait_ms

    def _stay_quiet(self, split: _Split) -> None:
        """It had nothing now; mark it idle if that has lasted."""
        idle_ms = self._plan.idle_ms
        if idle_ms is None or split.is_idle:
            return
        now_ms = self.context.now_ms()
        if split.quiet_since_ms is None:
            split.quiet_since_ms = now_ms
        if now_ms - split.quiet_since_ms >= idle_ms:
            if self._plan.interval_ms:
                split.marking.periodic(split.share)
            split.share.mark_idle()
            split.is_idle = True

    def _end_split(self) -> None:
        split = self._splits.popleft()
        try:
            if self._assigned is not None and self._plan.interval_ms and not split.is_idle:
                split.marking.periodic(split.share)  # no tick may have come since it was begun
            self._times.ended(split.share)
            if self._is_assigned and (known := split.identity) is not None:
                end = partial(self._end_of, split, known)
                self._finished.add(known.split, end, self.context.checkpoints)
        finally:
            split.reader.close()

    def _end_of(self, split: _Split, identity: IdentifiedSplit) -> SplitProgress:
        return SplitProgress(identity, split.reader.position(), split.share.watermark_ms)

    def _tick(self) -> None:
        if not self._over:
            for split in list(self._splits):
                if not split.is_idle:
                    split.marking.periodic(split.share)
            if self._shared is not None:
                self._shared.report()
            self.context.later(self._plan.interval_ms, self._tick)

    def _end_time(self) -> None:
        self._over = True
        if self._shared is not None:
            self._shared.close()

    def _least_ms(self) -> int | None:
        """The event time of the slowest split; None: all are idle or have ended."""
        return min((split.reached_ms for split in self._splits if split.share.active), default=None)
