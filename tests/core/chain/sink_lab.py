"""A job of one sink, driven by hand: records, checkpoints, lost messages, crashes, frozen tasks.

Records are numbers from 0 on; number ``n`` goes to task ``n % parallelism``. The position of the
source is part of a checkpoint, as in a real job, so that a new run writes again what the checkpoint
does not hold. Law: at the end of the job each number counts exactly once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from headgate.base.checkpoints import Stop
from headgate.base.elements import Bundle
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.operator import Operator
from headgate.core.chain.snapshots import OperatorRestored
from headgate.core.operators.sinks import TwoPhaseSinkOperator
from headgate.functions.context import SnapshotMoment, TaskInfo
from headgate.functions.sink import TwoPhaseCommittingSink
from tests.core.chain.kit import NOW_MS, KeptOutput

JUNK = -1
"""What frozen tasks of earlier runs write when they wake; it must never count."""


def sink_context(
    subtask: int = 0,
    parallelism: int = 1,
    attempt: int = 0,
    *,
    restored: OperatorRestored | None = None,
    checkpoints: bool = True,
    now_ms: Callable[[], int] = lambda: NOW_MS,
) -> OperatorContext:
    """Of one task of the sink."""
    task = TaskInfo("job", "sink", subtask, parallelism, attempt=attempt, job_id="job-1")
    return OperatorContext(
        "out", task, now_ms, uid="the-sink", restored=restored, checkpoints=checkpoints
    )


def open_sink(sink: TwoPhaseCommittingSink, context: OperatorContext) -> TwoPhaseSinkOperator:
    """The operator, ready for records."""
    operator = TwoPhaseSinkOperator(sink)
    operator.set_up(KeptOutput())
    try:
        operator.open(context)
    except BaseException:
        operator.close()
        raise
    return operator


@dataclass
class Taken:
    """A checkpoint on its way, or complete."""

    moment: SnapshotMoment
    position: int
    states: list[bytes | None]


class SinkJob:
    """``make_sink`` makes the description anew for each run, as unpickling does."""

    def __init__(
        self,
        make_sink: Callable[[], TwoPhaseCommittingSink],
        committed: Callable[[], Sequence[int]],
        make_record: Callable[[int], Any] = lambda number: number,
        parallelism: int = 2,
        checkpoints: bool = True,
    ) -> None:
        self._make_sink = make_sink
        self._committed = committed
        self._make_record = make_record
        self._checkpoints = checkpoints
        self.now_ms = NOW_MS
        self.position = 0
        self._attempt = 0
        self._number = 0
        self._pending: dict[int, Taken] = {}
        self.complete: Taken | None = None
        self._frozen: list[Operator] = []
        self.tasks: list[TwoPhaseSinkOperator] = []
        self._start(parallelism, None)

    # What may happen.

    def write(self, count: int) -> None:
        tasks = self.tasks
        for subtask, task in enumerate(tasks):
            mine = [n for n in self._next(count) if n % len(tasks) == subtask]
            if mine:
                task.process(Bundle([self._make_record(number) for number in mine]), 0)
        self.position += count

    def pass_time(self, time_ms: int) -> None:
        self.now_ms += time_ms

    def take(self, savepoint: bool = False, stop: Stop = Stop.NO) -> int:
        """A snapshot of all tasks."""
        self._number += 1
        moment = SnapshotMoment(self._number, self.now_ms, savepoint, stop)
        for task in self.tasks:
            task.before_barrier(moment)
        states = [task.snapshot(moment).sink for task in self.tasks]
        self._pending[self._number] = Taken(moment, self.position, states)
        return self._number

    def store(self, number: int | None = None, notified: int = -1) -> None:
        """The oldest on its way, or this one, is complete; only ``told`` tasks learn of it."""
        number = min(self._pending) if number is None else number
        taken = self._pending.pop(number)
        if taken.moment.is_savepoint and not taken.moment.stop.ends:
            if self.complete is None or self.complete.moment.checkpoint < number:
                self.savepoint: Taken = taken
            return
        self.complete = taken
        for older in [checkpoint for checkpoint in self._pending if checkpoint < number]:
            del self._pending[older]
        for task in self.tasks[: notified if notified >= 0 else None]:
            task.checkpoint_completed(number)

    def give_up(self) -> None:
        """The oldest on its way comes to nothing."""
        number = min(self._pending)
        del self._pending[number]
        for task in self.tasks:
            task.checkpoint_aborted(number)

    def crash(self, parallelism: int, frozen: bool = False, savepoint: bool = False) -> None:
        """A new run goes on from the newest complete checkpoint; a savepoint if that is newer."""
        old, self.tasks = self.tasks, []
        if frozen:
            self._frozen += old
        else:
            for task in old:
                task.close()
        self._pending.clear()
        found, saved = self.complete, getattr(self, "savepoint", None)
        if savepoint and saved is not None and (found is None or newer(saved, found)):
            found = self.complete = saved
        self._attempt += 1
        self._start(parallelism, found)

    def stop(self, parallelism: int, notified: int) -> None:
        """With a savepoint, and on from there."""
        self._pending.clear()
        self.store(self.take(savepoint=True, stop=Stop.SUSPEND), notified)
        self.crash(parallelism)

    def wake_frozen(self) -> None:
        """They write, and take snapshots that nobody waits for."""
        for task in self._frozen:
            task.process(Bundle([self._make_record(JUNK)]), 0)
            task.snapshot(SnapshotMoment(self._number + 1000, self.now_ms))

    def end(self, total: int) -> None:
        """The rest of the input, and the last checkpoint; then everything must be there, once."""
        if self.position < total:
            self.write(total - self.position)
        for task in self.tasks:
            task.end_input(0)
            task.finish()
        while any(task.awaits_checkpoint for task in self.tasks):
            self._pending.clear()
            self.store(self.take())
        self.close()
        assert sorted(self._committed()) == list(range(self.position))

    def close(self) -> None:
        for task in (*self.tasks, *self._frozen):
            task.close()

    # What must hold at any time.

    def check(self) -> None:
        """Nothing counts twice, and nothing that the newest complete checkpoint does not hold."""
        found = sorted(self._committed())
        assert len(set(found)) == len(found), f"twice: {found}"
        held = 0 if self.complete is None else self.complete.position
        assert not found or (found[0] >= 0 and found[-1] < held), f"too early: {found}, {held}"

    def _next(self, count: int) -> range:
        return range(self.position, self.position + count)

    def _start(self, parallelism: int, taken: Taken | None) -> None:
        self.position = 0 if taken is None else taken.position
        for subtask in range(parallelism):
            restored = None
            if taken is not None:
                states = taken.states[subtask::parallelism]
                found = tuple(state for state in states if state is not None)
                restored = OperatorRestored(taken.moment.checkpoint, sinks=found)
            context = sink_context(
                subtask,
                parallelism,
                self._attempt,
                restored=restored,
                checkpoints=self._checkpoints,
                now_ms=lambda: self.now_ms,
            )
            self.tasks.append(open_sink(self._make_sink(), context))


def newer(taken: Taken, other: Taken) -> bool:
    return taken.moment.checkpoint > other.moment.checkpoint


def run_job(job: SinkJob, steps: Sequence[tuple[Any, ...]], total: int) -> None:
    """Do what the steps say, as far as it is possible then."""
    try:
        for name, *args in steps:
            waiting = job._pending
            if name == "write":
                job.write(min(args[0], total - job.position))
            elif name == "store" and waiting:
                job.store(sorted(waiting)[args[0] % len(waiting)], args[1])
            elif name == "give_up" and waiting:
                job.give_up()
            elif name in ("take", "crash", "stop", "pass_time", "wake_frozen"):
                getattr(job, name)(*args)
            job.check()
        job.end(total)
    finally:
        job.close()


TOTAL = 60
WRITE = st.tuples(st.just("write"), st.integers(1, 6))
TAKE = st.tuples(st.just("take"), st.sampled_from([False, False, True]))
STORE = st.tuples(st.just("store"), st.integers(0, 2), st.sampled_from([-1, -1, 0, 1]))
CRASH = st.tuples(st.just("crash"), st.integers(1, 3), st.booleans(), st.booleans())
OTHERS = st.one_of(
    st.tuples(st.just("give_up")),
    st.tuples(st.just("stop"), st.integers(1, 3), st.integers(-1, 2)),
    st.tuples(st.just("pass_time"), st.sampled_from([1_000, 70_000])),
    st.tuples(st.just("wake_frozen")),
)
STEPS = st.lists(
    st.one_of(WRITE, WRITE, TAKE, TAKE, STORE, STORE, CRASH, OTHERS), min_size=15, max_size=40
)
