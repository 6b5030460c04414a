"""What the tests of connectors share: a task's context, and readers read to their end."""

import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from headgate.base.elements import Bundle, Record
from headgate.core.chain.context import OperatorContext
from headgate.functions.context import TaskInfo
from headgate.functions.source import SplitReader

PATIENCE_S = 30.0
LONGEST_MS = 5.0


def task_context(subtask: int = 0, parallelism: int = 1, attempt: int = 0) -> OperatorContext:
    task = TaskInfo("job", "source", subtask, parallelism, attempt=attempt)
    return OperatorContext("source", task, lambda: 0)


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
    threads, files = set(threading.enumerate()), open_files()
    yield
    assert set(threading.enumerate()) <= threads
    assert open_files() <= files


def open_files() -> set[str]:
    """What the process has open: numbers and what they stand for."""
    found: set[str] = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one that was the listing itself
            found.add(f"{number} {os.readlink(f'/proc/self/fd/{number}')}")
    return found
