"""Sources that sleep until there is something: descriptors, wakes, the clock, in real workers."""

import functools
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from headgate.base.elements import Bundle, LatencyMarker, StreamStatus
from headgate.base.errors import ConnectorError, UserFunctionFailed
from headgate.base.messages import TaskState
from headgate.base.settings import TransportKind
from headgate.connectors.function import FunctionSource
from headgate.connectors.socket import SocketTextSource
from headgate.core.chain.operator import Operator
from headgate.core.chain.watermarks import OWN_TIME, TimePlan
from headgate.core.operators.source import SourceOperator
from headgate.core.task.idling import MOST_FUTILE, PAUSE_MS
from headgate.functions.context import ConnectorContext
from headgate.functions.function import SourceFunction
from headgate.functions.source import Source, SplitReader
from headgate.host.net.exchange import Exchange
from tests.core.chain.time_kit import bounded
from tests.host.conftest import MakeExchange
from tests.host.local_job import Job, Run
from tests.host.rig import PATIENCE_S, eventually, quick


@pytest.fixture(params=[TransportKind.EPOLL, TransportKind.POLL], ids=lambda kind: kind.value)
def exchange(make_exchange: MakeExchange, request: pytest.FixtureRequest) -> Exchange:
    return make_exchange(quick(transport=request.param), local_only=True)


@pytest.fixture
def any_exchange(make_exchange: MakeExchange) -> Exchange:
    return make_exchange(local_only=True)


class Feed(SplitReader):
    """Gives what the test puts, from any thread; tells of it in the way of a subclass."""

    pause_ms = inf

    def __init__(self) -> None:
        self.polls = 0
        self.closed = False
        self.context: ConnectorContext | None = None
        self._records: deque[Any] = deque()

    def opened(self, context: ConnectorContext) -> "Feed":
        self.context = context
        return self

    def put(self, *records: Any) -> None:
        self._records += records
        self.tell()

    def end(self) -> None:
        self.put(None)

    def tell(self) -> None:
        """Records are there."""

    def poll(self, limit: int) -> list[Any] | None:
        self.polls += 1
        found: list[Any] = []
        while self._records and len(found) < limit:
            if self._records[0] is None:
                return found or None
            found.append(self._records.popleft())
        return found

    def wait_ms(self) -> float:
        return self.pause_ms

    def close(self) -> None:
        self.closed = True


class Woken(Feed):
    """By calls."""

    def tell(self) -> None:
        if self.context is not None:
            self.context.wake()


class Clocked(Feed):
    """By the clock."""

    pause_ms = 1.0


class Piped(Feed):
    """By a pipe, which it reads empty with each poll."""

    def __init__(self) -> None:
        super().__init__()
        self.out, self._in = os.pipe()
        os.set_blocking(self.out, False)

    def tell(self) -> None:
        os.write(self._in, b"x")

    def poll(self, limit: int) -> list[Any] | None:
        with suppress(BlockingIOError):
            os.read(self.out, 4096)
        return super().poll(limit)

    def fileno(self) -> int | None:
        return self.out

    def close(self) -> None:
        if not self.closed:
            os.close(self.out)
            os.close(self._in)
        super().close()


class AlwaysReadable(Piped):
    """Never reads its pipe."""

    def poll(self, limit: int) -> list[Any] | None:
        return Feed.poll(self, limit)


class Replaced(Piped):
    """Has a new pipe after each poll; the system gives it the old numbers, most of the time."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.RLock()

    def tell(self) -> None:
        with self._lock:
            super().tell()

    def poll(self, limit: int) -> list[Any] | None:
        found = super().poll(limit)
        if found is None:
            return None
        with self._lock:
            os.close(self.out)
            os.close(self._in)
            self.out, self._in = os.pipe()
            os.set_blocking(self.out, False)
            if self._records:  # told of in the old pipe
                self.tell()
        return found


class Feeds(Source):
    """A split for each feed; all are read by one task."""

    bounded = False

    def __init__(self, *feeds: Feed) -> None:
        self.feeds = feeds

    def splits(self, parallelism: int) -> Sequence[int]:
        return range(len(self.feeds))

    def open(self, split: Any, position: object, context: ConnectorContext) -> SplitReader:
        return self.feeds[split].opened(context)


class Watcher(Operator):
    """Notes all that reaches it."""

    def __init__(self, notes: list[Any]) -> None:
        self._notes = notes

    def process(self, bundle: Bundle, number: int) -> None:
        self._notes.extend(bundle.records)

    def status_changed(self, status: StreamStatus) -> None:
        self._notes.append(status)

    def marker_received(self, marker: LatencyMarker) -> None:
        self._notes.append(marker)


Start = Callable[..., tuple[Run, list[Any]]]


StartSource = Callable[[Source], tuple[Run, list[Any]]]


def deployed(
    source: Source, exchange: Exchange, plan: TimePlan = OWN_TIME, **info: Any
) -> tuple[Run, list[Any]]:
    job, notes = Job(), []
    read = functools.partial(SourceOperator, source, tuple(source.splits(1)), plan)
    job.operator(functools.partial(Watcher, notes), job.polled(read, name="feeds"))
    run = Run(job, exchange, **info)
    run.deploy()
    run.await_state(TaskState.RUNNING)
    return run, notes


@pytest.fixture
def start_source(any_exchange: Exchange) -> Iterator[StartSource]:
    runs: list[Run] = []

    def make(source: Source) -> tuple[Run, list[Any]]:
        run, notes = deployed(source, any_exchange)
        runs.append(run)
        return run, notes

    yield make
    for run in runs:
        run.close()


@pytest.fixture
def start() -> Iterator[Start]:
    runs: list[Run] = []
    feeds: list[Feed] = []

    def make(exchange: Exchange, *given: Feed, **how: Any) -> tuple[Run, list[Any]]:
        feeds.extend(given)
        run, notes = deployed(Feeds(*given), exchange, **how)
        runs.append(run)
        return run, notes

    yield make
    for run in runs:
        run.close()
    assert all(feed.closed for feed in feeds)
    for feed in feeds:
        if isinstance(feed, Woken):
            feed.tell()  # after the end


def asleep(feed: Feed) -> None:
    """Until a feed was polled, and nothing came of it."""
    eventually(lambda: feed.polls > 0, "the first poll")


KINDS = [Woken, Piped, Clocked, Replaced]


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_rouses_a_source_that_sleeps(
    start: Start, exchange: Exchange, kind: type[Feed]
) -> None:
    feed = kind()
    run, notes = start(exchange, feed)
    asleep(feed)
    for number in range(20):
        feed.put(number)
        eventually(lambda number=number: number in notes, "the record")  # type: ignore[misc]
    feed.end()
    run.finish()
    assert notes == list(range(20))


def test_splits_of_one_task_are_roused_each_in_its_own_way(
    start: Start, exchange: Exchange
) -> None:
    feeds = [Woken(), Piped(), Clocked(), Replaced()]
    run, notes = start(exchange, *feeds)
    for number in range(100):
        feeds[number % 4].put(number)
    eventually(lambda: len(notes) == 100, "all records")
    for feed in feeds:
        feed.end()
    run.finish()
    assert sorted(notes) == list(range(100))
    for first in range(4):
        assert [number for number in notes if number % 4 == first] == list(range(first, 100, 4))


@pytest.mark.parametrize("kind", [Woken, Piped])
def test_a_source_that_sleeps_is_not_polled(
    start: Start, exchange: Exchange, kind: type[Feed]
) -> None:
    sleeper, other = kind(), Clocked()
    start(exchange, sleeper, name="sleeps")
    asleep(sleeper)
    start(exchange, other, name="is awake")
    before = sleeper.polls
    polls = other.polls + 50
    eventually(lambda: other.polls > polls, "polls of the other source")
    assert sleeper.polls <= before + 1, "the first poll may just have begun"


def test_records_put_by_many_threads_that_wake_like_mad_all_arrive(
    start: Start, any_exchange: Exchange
) -> None:
    feed = Woken()
    run, notes = start(any_exchange, feed)

    def storm(first: int) -> None:
        for number in range(first, 2000, 4):
            feed.put(number)
            for _ in range(20):
                feed.tell()

    threads = [threading.Thread(target=storm, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eventually(lambda: len(notes) == 2000, "all records")
    feed.end()
    run.finish()
    assert sorted(notes) == list(range(2000))


def test_a_wake_from_open_and_one_from_within_a_poll_are_kept(
    start: Start, any_exchange: Exchange
) -> None:
    class Eager(Woken):
        def opened(self, context: ConnectorContext) -> Feed:
            context.wake()
            return super().opened(context)

        def poll(self, limit: int) -> list[Any] | None:
            if self.polls < 10:
                self.put(self.polls)
                self.polls += 1
                return []
            return super().poll(limit)

    feed = Eager()
    _, notes = start(any_exchange, feed)
    eventually(lambda: notes == list(range(10)), "what was put while it was polled")


def test_wakes_while_and_after_a_task_is_cancelled_do_no_harm(
    start: Start, any_exchange: Exchange
) -> None:
    feed, stop = Woken(), threading.Event()

    def storm() -> None:
        while not stop.is_set():
            feed.tell()

    run, _ = start(any_exchange, feed)
    thread = threading.Thread(target=storm)
    thread.start()
    run.cancel()
    run.await_end()
    any_exchange.close()
    stop.set()
    thread.join()
    assert [states[-1] for states in run.states.values()] == [TaskState.CANCELLED]


def test_a_sleeping_source_can_be_cancelled(start: Start, exchange: Exchange) -> None:
    feed = Piped()
    run, _ = start(exchange, feed)
    asleep(feed)
    run.cancel()
    run.await_end()
    assert feed.closed


def test_a_descriptor_that_is_always_readable_does_not_keep_a_core_busy(
    start: Start, exchange: Exchange
) -> None:
    feed, honest = AlwaysReadable(), Woken()
    feed.tell()
    began = time.monotonic()
    _, notes = start(exchange, feed, honest)
    polls = MOST_FUTILE + 60
    eventually(lambda: feed.polls >= polls, "polls by the clock")
    elapsed_ms = 1000 * (time.monotonic() - began)
    by_the_clock = feed.polls - MOST_FUTILE
    assert elapsed_ms >= by_the_clock / 4 * PAUSE_MS, "a busy loop would take a hundredth of it"
    honest.put("a")
    feed.put("b")
    eventually(lambda: sorted(notes) == ["a", "b"], "records nevertheless")


def test_a_descriptor_that_is_closed_leaves_the_source_to_the_clock(
    start: Start, exchange: Exchange
) -> None:
    class Shut(Clocked):
        pause_ms = inf

        def fileno(self) -> int | None:
            return -1

    feed = Shut()
    _, notes = start(exchange, feed)
    asleep(feed)
    feed.put(1)
    eventually(lambda: notes == [1], "the record")


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        ("file", ConnectorError, "of a file or folder, which cannot be watched"),
        ("text", UserFunctionFailed, "'feeds' failed: TypeError: 'str' object"),
        ("nan", UserFunctionFailed, r"wait_ms\(\) of Odd returned nan; return milliseconds"),
    ],
)
def test_what_a_reader_must_not_answer_fails_the_job_with_a_reason(
    start: Start,
    any_exchange: Exchange,
    tmp_path: Path,
    answer: str,
    error: type[Exception],
    words: str,
) -> None:
    with open(tmp_path / "file", "w+") as file:

        class Odd(Feed):
            def fileno(self) -> Any:
                return {"file": file.fileno(), "text": "3", "nan": None}[answer]

            def wait_ms(self) -> float:
                return float("nan") if answer == "nan" else inf

        run, _ = start(any_exchange, Odd())
        run.await_end()
    [found] = run.errors.values()
    with pytest.raises(error, match=words):
        raise found
    assert getattr(found, "operator", "") == "feeds"


# Sources that come with Headgate.


def test_lines_of_a_server_rouse_the_source(start_source: StartSource) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        run, notes = start_source(SocketTextSource("127.0.0.1", listener.getsockname()[1]))
        peer, _ = listener.accept()
        with peer:
            for number in range(20):
                peer.sendall(b"%d\n" % number)
                eventually(lambda number=number: str(number) in notes, "the line")  # type: ignore[misc]
        run.finish()
    assert notes == [str(number) for number in range(20)]


class Relayed(SourceFunction[int]):
    """Collects what the test puts."""

    def __init__(self) -> None:
        self.queue: Queue[int | None] = Queue()

    def run(self, ctx: Any) -> None:
        while (found := self.queue.get()) is not None:
            ctx.collect(found)

    def cancel(self) -> None:
        self.queue.put(None)


def test_what_a_function_collects_rouses_the_source(start_source: StartSource) -> None:
    function = Relayed()
    run, notes = start_source(FunctionSource(function))
    for number in range(20):
        function.queue.put(number)
        eventually(lambda number=number: number in notes, "the record")  # type: ignore[misc]
    function.queue.put(None)
    run.finish()
    assert notes == list(range(20))


def test_a_function_that_collects_nothing_can_be_cancelled(start_source: StartSource) -> None:
    run, notes = start_source(FunctionSource(Relayed()))
    run.cancel()
    run.await_end()
    assert notes == []


# Timers of the source's own.


def test_idleness_is_noticed_although_nobody_polls(start: Start, any_exchange: Exchange) -> None:
    feed = Woken()
    plan = bounded(interval_ms=20, idle_ms=30)
    _, notes = start(any_exchange, feed, plan=plan)
    eventually(lambda: notes == [StreamStatus(active=False)], "idleness")
    polls = feed.polls
    feed.put((5,))
    eventually(lambda: len(notes) == 4, "activity and idleness")
    assert notes[1:] == [StreamStatus(active=True), (5,), StreamStatus(active=False)]
    assert feed.polls <= polls + 6


def test_markers_go_out_although_nobody_polls(start: Start, any_exchange: Exchange) -> None:
    feed = Woken()
    _, notes = start(any_exchange, feed, latency_interval_ms=5.0)
    eventually(lambda: len(notes) >= 5, "markers")
    assert {type(note) for note in notes} == {LatencyMarker}
