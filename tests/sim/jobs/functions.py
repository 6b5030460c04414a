"""The users' functions of simulated jobs: pure, observed, sometimes slow or failing.

The sink of jobs that take checkpoints commits to the commit log, in two phases.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Final, Protocol

from headgate.base.elements import Record
from headgate.functions.context import ConnectorContext, RuntimeContext, SnapshotMoment
from headgate.functions.function import OutputTag
from headgate.functions.source import Source, SplitEnumerator, SplitReader
from headgate.sim.jobs.threads import SimThread
from headgate.sim.worker import CheckFailed
from tests.sim.jobs.commit_log import CommitLog, Transaction
from tests.sim.jobs.records import (
    ATTEMPT_STEP,
    KEY,
    LINE,
    NUMBER,
    PADDING,
    PATH,
    VALUE,
    Item,
    Observations,
    item_of,
    make_record,
)

MODULUS: Final = 1_000_003
SIDE: Final = "side"
WAYS: Final = ("clock", "clock", "wake", "descriptor")
"""How sources learn that there is something again."""


class PlannedFailure(Exception):
    """A user's function that fails, because the scenario says so."""


@dataclass(frozen=True, slots=True)
class Behavior:
    """How the functions of a run behave."""

    slow: float = 0
    """Share of records that take long …"""
    slow_ms: float = 0
    """… up to this."""
    changes: bool = True
    """Functions change the records that they get."""
    fails: "dict[str, int]" = field(default_factory=dict)
    """Place (node.subtask) → at which call it fails, once; -1: when it is opened, -2: closed."""


class Threads(Protocol):
    """Finds the thread of the task that user code runs in."""

    def thread_of(self, task: str) -> SimThread: ...


@dataclass(slots=True)
class Run:
    """What all functions of a run share."""

    seed: int
    observations: Observations
    threads: Threads
    behavior: Behavior
    commit_log: CommitLog | None = None
    """Where sinks commit; None: they do not, and no checkpoints are taken."""
    attempt: int = 0
    """Of tasks that are being set up."""


class Function:
    """Base: knows its place, counts its calls."""

    def __init__(self, run: Run, node: int) -> None:
        self.node = node
        self._run = run
        self._calls = 0

    def open(self, context: RuntimeContext) -> None:
        self._enter(context.get_index_of_this_subtask(), context.get_task_name_with_subtasks())
        self._may_fail(-1)

    def close(self) -> None:
        self._run.observations.closed[self.where] += 1
        self._may_fail(-2)

    def _enter(self, subtask: int, task: str, split: str = "") -> None:
        self.where = f"{self.node}.{subtask}{split}"
        # What earlier attempts have sent takes ways of its own: tasks may have other shares now.
        self.step = (self.node, subtask + ATTEMPT_STEP * self._run.attempt)
        self._thread = self._run.threads.thread_of(task)
        self._random = Random(f"{self.where} {self._run.seed}")
        self._run.observations.opened[self.where] += 1

    def _seen(self, record: Record, number: int = 0) -> None:
        self._run.observations.passed(f"{self.where}/{number}" if number else self.where, record)
        self._work()

    def _work(self) -> None:
        self._calls += 1
        behavior = self._run.behavior
        if behavior.slow and self._random.random() < behavior.slow:
            spend(self._thread, behavior.slow_ms * self._random.random())
        self._may_fail(self._calls)

    def _may_fail(self, at: int) -> None:
        fails = self._run.behavior.fails
        if fails.get(self.where) == at:
            del fails[self.where]
            self._run.observations.failed.append(self.where)
            raise PlannedFailure(f"{self.where} broke at {at}")

    def _sent(self, record: Record, value: int, number: int = 0) -> Record:
        """The record with a new value, one task further."""
        path = (*record[PATH], (*self.step, number) if number else self.step)
        if not self._run.behavior.changes:
            return [record[KEY], value, record[LINE], record[NUMBER], path, record[PADDING]]
        record[VALUE], record[PATH] = value, path
        return record


class Mapper(Function):
    """One for one."""

    def map(self, record: Record) -> Record:
        self._seen(record)
        return self._sent(record, mapped(record[VALUE], self.node))


class Caller(Function):
    """One for one, by calls; those whose answers may come in any order go each its own way."""

    def __init__(self, run: Run, node: int, ordered: bool) -> None:
        super().__init__(run, node)
        self._ordered = ordered

    async def async_invoke(self, record: Record) -> list[Record]:
        if self._ordered or self._run.commit_log is None:
            self._seen(record)
        else:  # what was not answered is called again, what was done before the rest
            self._run.observations.records_read += 1
            self._work()
        way = 0 if self._ordered else self._calls
        mine = list(record)  # what is not answered yet belongs to the next checkpoint
        return [self._sent(mine, mapped(record[VALUE], self.node), way)]

    async def async_invoke_batch(self, records: list[Record]) -> list[Record]:
        """The same for several; it takes no time, because no task's thread is here."""
        found: list[Record] = []
        for record in records:
            if self._ordered or self._run.commit_log is None:
                self._run.observations.passed(self.where, record)
            else:
                self._run.observations.records_read += 1
            self._calls += 1
            self._may_fail(self._calls)
            way = 0 if self._ordered else self._calls
            found.append(self._sent(list(record), mapped(record[VALUE], self.node), way))
        return found

    def cost(self, record: Record) -> float:
        return float(len(record[PADDING]) % 7)

    def timeout(self, record: Record) -> list[Record]:
        raise AssertionError(f"{self.where} timed out without a clock")


class Filter(Function):
    """Drops a quarter; does not tell the path, so a mapper follows it."""

    def filter(self, record: Record) -> bool:
        self._seen(record)
        return is_kept(record[VALUE])


class FlatMapper(Function):
    """None, one or two for one."""

    def flat_map(self, record: Record) -> Iterator[Record]:
        self._seen(record)
        path = (*record[PATH], self.step)
        for copy in range(copies_of(record[VALUE])):
            number = (*record[NUMBER], copy)
            yield [*record[:NUMBER], number, path, record[PADDING]]


class Splitter(Function):
    """Some go to the side output."""

    def process_element(self, record: Record, context: object) -> Iterator[Record]:
        self._seen(record)
        to_side = is_for_side(record[VALUE])
        sent = self._sent(record, mapped(record[VALUE], self.node), int(to_side))
        yield (OutputTag(SIDE), sent) if to_side else sent


class CoMapper(Function):
    """Two inputs."""

    def map1(self, record: Record) -> Record:
        self._seen(record)
        return self._sent(record, mapped(record[VALUE], self.node))

    def map2(self, record: Record) -> Record:
        self._seen(record, 1)
        return self._sent(record, mapped(record[VALUE], -self.node), 1)


class Weigher(Function):
    """Makes records of a key alike, so that what reduce gives does not depend on their order."""

    def map(self, record: Record) -> Record:
        self._seen(record)
        return make_record(weighed(record[KEY], self.node))


class Reducer(Function):
    """Counts and adds."""

    def reduce(self, old: Record, new: Record) -> Record:
        self._work()
        number = (old[NUMBER][0] + new[NUMBER][0],)
        return [*old[:VALUE], old[VALUE] + new[VALUE], old[LINE], number, old[PATH], b""]


class Collector(Function):
    """A sink."""

    def create_writer(self, context: ConnectorContext) -> "Collector":
        self._enter(context.task.subtask, context.task.name)
        return self

    def write(self, records: list[Record]) -> None:
        for record in records:
            self._seen(record)
            self._run.observations.sunk(self.node, record)

    def flush(self) -> None:
        self._work()


@dataclass(frozen=True, slots=True)
class Numbers(Source):
    """A source of so many records in each split; now and then it has nothing."""

    run: Run
    node: int
    counts: tuple[int, ...]
    padding: tuple[int, ...]
    pauses: float
    pause_ms: float
    bounded: bool

    def splits(self, parallelism: int) -> Sequence[int]:
        return range(len(self.counts))

    def create_enumerator(self, parallelism: int, position: object) -> "NumbersEnumerator":
        return NumbersEnumerator(self, position if isinstance(position, int) else 0)

    def open(self, split: object, position: object, context: ConnectorContext) -> "NumbersReader":
        assert isinstance(split, int)
        assert position is None or isinstance(position, int)
        return NumbersReader(self, split, position or 0, context)


class NumbersEnumerator(SplitEnumerator):
    """Finds a few splits at a time; its position is how many it has found."""

    def __init__(self, source: Numbers, found: int) -> None:
        self.interval_ms: int | None = 3
        self._source = source
        self._found = found
        self._random = Random(f"{source.node} {found} {source.run.seed} {source.run.attempt}")

    def discover(self) -> Sequence[int]:
        last = len(self._source.counts)
        before, self._found = self._found, min(last, self._found + self._random.randrange(4))
        self.interval_ms = None if self._found == last else self._random.choice((1, 10, 40))
        return range(before, self._found)

    def position(self) -> int:
        return self._found


class NumbersReader(Function, SplitReader[Record]):
    """Reads one split; after a pause the clock, a thread or a descriptor tells that it is over."""

    def __init__(self, source: Numbers, split: int, at: int, context: ConnectorContext) -> None:
        super().__init__(source.run, source.node)
        self._source = source
        self._items = items_of_split(source, split)
        self._at = at
        self._enter(context.task.subtask, context.task.name, f":{split}")
        self._way = Random(f"way {self.where} {source.run.seed}").choice(WAYS)
        self._wake = context.wake
        self._descriptor = split
        self._sleeps = False

    def poll(self, limit: int) -> list[Record] | None:
        self._work()
        if self._at == len(self._items):
            return None
        if self._sleeps:
            return []
        set_readable(self._thread, self._descriptor, False)
        if self._random.random() < self._source.pauses:
            if self._way != "clock":
                self._fall_asleep()
            return []
        count = min(limit, self._random.choice((1, 2, 5, 20)))
        found = self._items[self._at : self._at + count]
        self._at += len(found)
        sizes = self._source.padding
        return [
            make_record(item, (self.step,), b"x" * sizes[item[1] % len(sizes)]) for item in found
        ]

    def wait_ms(self) -> float:
        return self._pause_ms() if self._way == "clock" else inf

    def fileno(self) -> int | None:
        return self._descriptor if self._way == "descriptor" else None

    def _pause_ms(self) -> float:
        return self._random.choice((0.0, 1.0, self._source.pause_ms))

    def _fall_asleep(self) -> None:
        self._sleeps = True
        what = f"records for {self.where}"
        self._thread.worker.later(self._pause_ms(), what, self._wake_up)

    def _wake_up(self) -> None:
        self._sleeps = False
        if self._way == "descriptor":
            set_readable(self._thread, self._descriptor, True)
        else:
            self._wake()

    def position(self) -> object:
        return self._at


def spend(thread: SimThread, delay_ms: float) -> None:
    """The user's code takes a while; wakes that come meanwhile are kept."""
    if not thread.loan.is_lent:
        raise CheckFailed(f"the user's code of {thread.name} runs inside the baton")

    def go_on() -> None:
        thread._ready = True

    until = thread.worker.clock.now_ms + delay_ms
    thread.worker.later(delay_ms, f"user code of {thread.name}", go_on)
    while thread.worker.clock.now_ms < until and not thread._killed:
        thread._rest("its user's code")


def set_readable(thread: SimThread, descriptor: int, is_readable: bool) -> None:
    """The world outside has written to a descriptor of the task's source, or it was read."""
    if is_readable:
        thread._readable.add(descriptor)
        if thread._watch is not None:
            thread._watch.written(descriptor)
    else:
        thread._readable.discard(descriptor)


def items_of_split(source: Numbers, split: int) -> list[Item]:
    """What a split gives, in order."""
    line = f"s{source.node}.{split}"
    return [
        (number * 7 % 5, mapped(number, source.node * 100 + split), line, (number,))
        for number in range(source.counts[split])
    ]


def mapped(value: int, node: int) -> int:
    return (value * 31 + node * 17 + 7) % MODULUS


def is_kept(value: int) -> bool:
    return value % 4 != 0


def copies_of(value: int) -> int:
    return value % 3


def is_for_side(value: int) -> bool:
    return value % 5 < 2


def weighed(key: int, node: int, count: int = 1) -> Item:
    """The running result of a key after so many records."""
    return key, count * (key + 3), f"r{node}.{key}", (count,)


class Transactions(Function):
    """Sink and writer of one task."""

    def __init__(self, run: Run, node: int) -> None:
        super().__init__(run, node)
        self._items: list[Item] = []
        self._prepared = 0
        self._attempt = run.attempt

    def create_writer(self, context: ConnectorContext) -> "Transactions":
        self._subtask = context.task.subtask
        self._enter(context.task.subtask, context.task.name)
        return self

    def create_committer(self, context: ConnectorContext) -> "Commits":
        assert self._run.commit_log is not None
        return Commits(self._run.commit_log)

    def write(self, records: list[Record]) -> None:
        for record in records:
            self._seen(record)
            self._items.append(item_of(record))

    def flush(self) -> None:
        self._work()

    def prepare_commit(self, moment: SnapshotMoment | None) -> Sequence[Record]:
        items, self._items = self._items, []
        if not items:
            return []
        self._prepared += 1
        name = (self._attempt, self.node, self._subtask, self._prepared)
        transaction: Transaction = (name, 0 if moment is None else moment.checkpoint, items)
        return [transaction]

    def unfinished(self) -> Sequence[Record]:
        return []


class Commits:
    """Commits for one task."""

    def __init__(self, commit_log: CommitLog) -> None:
        self._commit_log = commit_log

    def commit(self, committables: Sequence[Record]) -> None:
        for transaction in committables:
            self._commit_log.commit(transaction, again=False)

    def commit_again(self, committables: Sequence[Record]) -> None:
        for transaction in committables:
            self._commit_log.commit(transaction, again=True)

    def close(self) -> None:
        """Holds nothing."""
