"""A source function beside its task: order, bound, failure and the end of its thread."""

import logging
import pickle
import threading
import time
import traceback
from collections.abc import Callable, Iterator

import pytest

from headgate.base.elements import Bundle, Record, StreamStatus, Watermark
from headgate.base.errors import UserFunctionFailed
from headgate.connectors.function import (
    FunctionReader,
    FunctionSource,
    Handover,
    SourceContext,
)
from headgate.functions.context import RuntimeContext
from headgate.functions.function import SourceFunction
from tests.connectors.kit import read_to_end, read_until, task_context
from tests.host.log_kit import kept_lines


class Running(SourceFunction[Record]):
    """Runs the body it is given; tells what happened and on which thread."""

    def __init__(self, body: Callable[[SourceContext, "Running"], None]) -> None:
        self.body = body
        self.cancelled = threading.Event()
        self.log: list[str] = []
        self.threads: set[int] = set()

    def open(self, runtime_context: RuntimeContext) -> None:
        self._note("open")

    def run(self, ctx: SourceFunction.SourceContext) -> None:
        self._note("run")
        assert isinstance(ctx, SourceContext)
        self.body(ctx, self)

    def cancel(self) -> None:
        self.log.append("cancel")
        self.cancelled.set()

    def close(self) -> None:
        self._note("close")

    def _note(self, what: str) -> None:
        self.log.append(what)
        self.threads.add(threading.get_ident())


Open = Callable[..., FunctionReader]


@pytest.fixture
def open_reader() -> Iterator[Open]:
    readers: list[FunctionReader] = []

    def make(function: SourceFunction[Record], **changes: int) -> FunctionReader:
        source = FunctionSource(function, **changes)  # type: ignore[arg-type]
        [split] = source.splits(4)
        readers.append(source.open(split, None, task_context()))
        return readers[-1]

    yield make
    for reader in readers:
        reader.close()


def count_to(end: int) -> Callable[[SourceContext, Running], None]:
    def body(ctx: SourceContext, function: Running) -> None:
        for number in range(end):
            ctx.collect(number)

    return body


def count_for_ever(ctx: SourceContext, function: Running) -> None:
    number = 0
    while not function.cancelled.is_set():
        ctx.collect(number)
        number += 1


def eventually(true: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 30
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.001)


def test_records_come_in_order_and_the_end_after_them(open_reader: Open) -> None:
    function = Running(count_to(10_000))
    reader = open_reader(function, queue_records=100)
    assert read_to_end(reader, limit=7) == list(range(10_000))
    assert reader.poll(1) is None
    assert reader.position() is None
    reader.close()
    assert function.log == ["open", "run", "close"], "nobody cancels what has ended"


def test_the_function_has_one_thread_of_its_own(open_reader: Open) -> None:
    function = Running(count_to(1))
    read_to_end(open_reader(function))
    assert len(function.threads) == 1
    assert threading.get_ident() not in function.threads


def test_lines_of_its_thread_name_the_task(open_reader: Open) -> None:
    def body(ctx: SourceContext, function: Running) -> None:
        logging.getLogger("shop").warning("the sensor is slow")

    with kept_lines("shop") as lines:
        read_to_end(open_reader(Running(body)))
    line, info = lines.of("the sensor is slow"), task_context().task
    assert (line.task, line.subtask, line.attempt) == (info.vertex, info.subtask, info.attempt)
    assert line.operator == task_context().operator


def test_a_list_that_the_function_changes_was_sent_as_it_was(open_reader: Open) -> None:
    def body(ctx: SourceContext, function: Running) -> None:
        growing: list[int] = []
        for number in range(4):
            growing.append(number)
            if number % 2:
                ctx.collect_with_timestamp(growing, number)
            else:
                ctx.collect(growing)

    assert read_to_end(open_reader(Running(body))) == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3]]


def test_timestamps_travel_with_their_records(open_reader: Open) -> None:
    def body(ctx: SourceContext, function: Running) -> None:
        ctx.collect_with_timestamp("a", 5)
        ctx.collect("b")
        function.cancelled.wait()

    reader = open_reader(Running(body))
    found: list[tuple[Record, int | None]] = []
    while len(found) < 2:
        polled = reader.poll(1)
        assert polled is not None
        if isinstance(polled, Bundle):
            assert polled.timestamps is not None
            found += zip(polled.records, polled.timestamps, strict=True)
        else:
            found += [(record, None) for record in polled]
    assert found == [("a", 5), ("b", None)]


def elements_of(reader: FunctionReader) -> list[Record]:
    """Records with their times, and what was said between them."""
    found: list[Record] = []
    while (polled := reader.poll(3)) is not None:
        if isinstance(polled, Bundle):
            found += zip(polled.records, polled.timestamps or (), strict=True)
        elif isinstance(polled, list):
            found += polled
        else:
            found.append(polled)
    return found


def test_watermarks_and_idleness_stay_in_line_with_the_records(open_reader: Open) -> None:
    def body(ctx: SourceContext, function: Running) -> None:
        ctx.emit_watermark(Watermark(0))
        for number in range(10):
            ctx.collect_with_timestamp(number, 10 * number)
            if number in (3, 4, 8):
                ctx.emit_watermark(Watermark(10 * number))
        ctx.mark_as_temporarily_idle()

    def timed(*numbers: int) -> list[tuple[int, int]]:
        return [(number, 10 * number) for number in numbers]

    assert elements_of(open_reader(Running(body), queue_records=4)) == [
        Watermark(0),
        *timed(0, 1, 2, 3),
        Watermark(30),
        *timed(4),
        Watermark(40),
        *timed(5, 6, 7, 8),
        Watermark(80),
        *timed(9),
        StreamStatus(active=False),
    ]


def test_a_function_that_says_too_much_waits_too(open_reader: Open) -> None:
    said: list[int] = []

    def body(ctx: SourceContext, function: Running) -> None:
        for number in range(100):
            ctx.emit_watermark(Watermark(number))
            said.append(number)

    reader = open_reader(Running(body), queue_records=5)
    reader.poll(1)
    eventually(lambda: len(said) >= 5)
    assert len(said) <= 6
    found = [element.timestamp for element in elements_of(reader)]
    assert found == list(range(100))[-len(found) :]


@pytest.mark.parametrize(
    ("say", "problem"),
    [
        (lambda ctx: ctx.emit_watermark(5), "a source function emitted 5; give Watermark"),
        (lambda ctx: ctx.collect_with_timestamp("a", 1.5), "the timestamp 1.5; give whole"),
    ],
)
def test_what_is_no_time_is_refused(
    open_reader: Open, say: Callable[[SourceContext], None], problem: str
) -> None:
    with pytest.raises(TypeError, match=problem):
        read_to_end(open_reader(Running(lambda ctx, function: say(ctx))))


def test_collect_waits_while_the_queue_is_full(open_reader: Open) -> None:
    sent: list[int] = []

    def body(ctx: SourceContext, function: Running) -> None:
        for number in range(100):
            ctx.collect(number)
            sent.append(number)

    reader = open_reader(Running(body), queue_records=10)
    taken = read_until(reader, bool)
    while len(taken) < 88:
        full = len(taken) + 10
        eventually(lambda full=full: len(sent) == full)  # type: ignore[misc]
        found = reader.poll(3)
        assert isinstance(found, list)
        assert len(found) == 3
        taken += found
    assert taken + read_to_end(reader) == list(range(100))


def test_a_task_that_found_nothing_is_woken_once_for_what_comes() -> None:
    woken: list[int] = []
    handover = Handover(100, wake=lambda: woken.append(1))
    handover.put(1, None)
    assert handover.take(10) == [1]
    assert woken == [], "nobody waits"
    assert handover.take(10) == []
    handover.put(2, None)
    handover.put(3, None)
    assert woken == [1]
    assert handover.take(10) == [2, 3]
    assert handover.take(10) == []
    handover.say(Watermark(5))
    assert woken == [1, 1]
    handover.end(None)
    assert woken == [1, 1, 1]


def test_an_exception_comes_after_the_records_before_it(open_reader: Open) -> None:
    def the_culprit(ctx: SourceContext, function: Running) -> None:
        ctx.collect(1)
        raise ValueError("broken pump")

    function = Running(the_culprit)
    reader = open_reader(function)
    assert read_until(reader, bool) == [1]
    with pytest.raises(ValueError, match="broken pump") as caught:
        read_to_end(reader)
    assert "the_culprit" in "".join(traceback.format_tb(caught.value.__traceback__))
    assert function.log == ["open", "run", "close"]


def test_an_exit_does_not_end_the_task_without_a_word(open_reader: Open) -> None:
    def body(ctx: SourceContext, function: Running) -> None:
        raise SystemExit(3)

    with pytest.raises(UserFunctionFailed, match=r"'source' failed in run\(\): SystemExit: 3"):
        read_to_end(open_reader(Running(body)))


def test_close_cancels_a_function_that_watches_for_it(open_reader: Open) -> None:
    function = Running(lambda ctx, function: function.cancelled.wait() and None)
    reader = open_reader(function)
    assert reader.poll(1) == []
    reader.close()
    assert function.log in (["open", "run", "cancel", "close"], ["cancel", "open", "run", "close"])


def test_close_unwinds_a_function_that_waits_for_room(open_reader: Open) -> None:
    function = Running(count_for_ever)
    reader = open_reader(function, queue_records=5)
    assert read_until(reader, lambda records: len(records) >= 20)[:20] == list(range(20))
    reader.close()
    assert function.log == ["open", "run", "cancel", "close"]


def test_close_unwinds_a_function_that_swallows_exceptions(open_reader: Open) -> None:
    def body(ctx: SourceContext, function: Running) -> None:
        while True:
            try:
                ctx.collect(1)
            except Exception:
                continue

    reader = open_reader(Running(body))
    read_until(reader, bool)
    reader.close()


def test_a_reader_that_was_never_polled_starts_no_thread(open_reader: Open) -> None:
    function = Running(count_to(1))
    open_reader(function).close()
    assert function.log == []


def test_trouble_in_cancel_is_logged(open_reader: Open, caplog: pytest.LogCaptureFixture) -> None:
    class Stubborn(Running):
        def cancel(self) -> None:
            super().cancel()
            raise ValueError("cannot cancel")

    reader = open_reader(Stubborn(count_for_ever))
    read_until(reader, bool)
    reader.close()
    assert "cannot cancel" in caplog.text


def test_trouble_after_cancel_is_logged(
    open_reader: Open, caplog: pytest.LogCaptureFixture
) -> None:
    def body(ctx: SourceContext, function: Running) -> None:
        function.cancelled.wait()
        raise ValueError("torn down")

    reader = open_reader(Running(body))
    reader.poll(1)
    reader.close()
    assert "torn down" in caplog.text


def test_a_thread_that_does_not_end_is_reported(
    open_reader: Open, caplog: pytest.LogCaptureFixture
) -> None:
    release = threading.Event()
    function = Running(lambda ctx, function: release.wait() and None)
    reader = open_reader(function, cancel_timeout_ms=1)
    reader.poll(1)
    eventually(lambda: "run" in function.log)
    reader.close()
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "source (1/1)" in record.getMessage()
    assert "let cancel() make run() return" in record.getMessage()
    release.set()
    eventually(lambda: all("source of" not in thread.name for thread in threading.enumerate()))


class Plain(SourceFunction[int]):
    def run(self, ctx: SourceFunction.SourceContext) -> None:
        ctx.collect(1)

    def cancel(self) -> None:
        pass


def test_the_description_travels(open_reader: Open) -> None:
    source = pickle.loads(pickle.dumps(FunctionSource(Plain(), bounded=True)))
    assert source.bounded
    assert not FunctionSource(Plain()).bounded
    assert read_to_end(open_reader(source.function)) == [1]
