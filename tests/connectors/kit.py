"""What the tests of connectors share: a task's context, and readers read to their end."""

import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from headgate.base.elements import Bundle, Record
from headgate.base.errors import TaskCancelled
from headgate.core.chain.context import OperatorContext
from headgate.functions.context import TaskInfo
from headgate.functions.source import Source, SplitReader
from tests.host.leaks import descriptors, left_open

PATIENCE_S = 30.0
LONGEST_MS = 5.0


def task_context(subtask: int = 0, parallelism: int = 1, attempt: int = 0) -> OperatorContext:
    task = TaskInfo("job", "source", subtask, parallelism, attempt=attempt)
    return OperatorContext("source", task, lambda: 0, sleep=time.sleep)


def first_split(source: Source) -> Any:
    (split,) = source.create_enumerator(1, None).discover()
    return split


@contextmanager
def opened(
    source: Source, position: Any = None, split: Any = None, context: Any = None
) -> Iterator[Any]:
    """A reader of the split, or of the only one there is."""
    found = split or first_split(source)
    reader = source.open(found, position, context or task_context())
    try:
        yield reader
    finally:
        reader.close()


class CancelledTask:
    """A task that waits in a thread for the outside world, until it is cancelled."""

    def __init__(self) -> None:
        self._cancelled = threading.Event()
        self.is_waiting = threading.Event()
        """It has asked whether it is to end, or slept."""
        self._interrupts: list[Callable[[], None]] = []
        self.context = replace(
            task_context(),
            is_cancelled=self._ask,
            sleep=self._sleep,
            when_cancelled=self._interrupts.append,
        )

    def cancel_while(
        self, wait: Callable[[], object], when: Callable[[], bool] | None = None
    ) -> None:
        """Cancel the task as soon as it waits, or ``when``; it must end by that."""
        raised: list[BaseException] = []

        def run() -> None:
            try:
                wait()
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=run, name="cancelled task")
        thread.start()
        try:
            give_up = time.monotonic() + PATIENCE_S
            while not raised and not (when or self.is_waiting.is_set)():
                assert time.monotonic() < give_up, "it does not wait"
                time.sleep(0.005)
        finally:
            self._cancelled.set()
            for interrupt in self._interrupts:
                interrupt()
            thread.join(PATIENCE_S)
        assert not thread.is_alive(), "it does not end"
        assert [type(error) for error in raised] == [TaskCancelled], raised

    def _ask(self) -> bool:
        self.is_waiting.set()
        return self._cancelled.is_set()

    def _sleep(self, seconds: float) -> None:
        self.is_waiting.set()
        if self._cancelled.wait(seconds):
            raise TaskCancelled("task source was cancelled")


def read_some(reader: SplitReader, limit: int = 1000) -> list[Record] | None:
    """One poll, as a list."""
    found = reader.poll(limit)
    if found is None:
        return None
    return list(found.records if isinstance(found, Bundle) else found)


def read_to_end(reader: SplitReader, limit: int = 1000) -> list[Record]:
    """All records; waits as the reader asks for it."""
    records: list[Record] = []
    give_up = time.monotonic() + PATIENCE_S
    while (found := read_some(reader, limit)) is not None:
        assert len(found) <= limit
        assert time.monotonic() < give_up, f"no end after {records[-3:]}"
        records += found
        if not found:
            wait_as_asked(reader)
    return records


def read_until(reader: SplitReader, enough: Callable[[list[Record]], bool]) -> list[Record]:
    """Polls until the records are enough."""
    records: list[Record] = []
    give_up = time.monotonic() + PATIENCE_S
    while not enough(records):
        assert time.monotonic() < give_up, f"only {records}"
        found = read_some(reader)
        assert found is not None, f"ended after {records}"
        records += found
        if not found:
            wait_as_asked(reader)
    return records


def wait_as_asked(reader: SplitReader) -> None:
    """Until its descriptor is readable or its time has come; a wake is not noticed, but soon."""
    descriptor, wait_ms = reader.fileno(), reader.wait_ms()
    if descriptor is None:
        time.sleep(min(wait_ms, LONGEST_MS) / 1000)
    else:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        poller.poll(min(wait_ms, 20 * LONGEST_MS))


@contextmanager
def nothing_leaks() -> Iterator[None]:
    """No thread and no open file or socket may be left behind."""
    threads, before = set(threading.enumerate()), descriptors()
    yield
    started = set(threading.enumerate()) - threads
    assert not started, f"threads are left: {started}"
    left = left_open(before)
    assert not left, f"descriptors are left open: {left}"
