"""A source that a test fills by hand.

Law: it is a log that only grows, outside of the job, as a topic is: readers go on from a position,
and a restored job reads again what came after its checkpoint.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from math import inf
from typing import Any, TypeAlias

from headgate.base.elements import Bundle, Record, StreamStatus, Watermark
from headgate.base.errors import HarnessMisused
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Source, SplitReader
from headgate.testing.outside import ByReference

Entry: TypeAlias = tuple[Record, int | None] | Watermark | StreamStatus


class ManualSource(Source):
    """Records, watermarks and the end come when the test says so.

    ::

        clicks = ManualSource("clicks")
        run = run_local(lambda env: env.from_source(clicks).key_by(user).process(Sessions()))
        clicks.send({"user": "a"}, timestamp=10)
        clicks.advance_watermark(60_000)
        assert run.output == [...]
    """

    bounded = False
    finds_more = False

    def __init__(self, name: str = "manual source", splits: int = 1) -> None:
        """``splits``: how many partitions it has; each is read by one task, in its order."""
        if type(splits) is not int or splits < 1:
            raise HarnessMisused(f"ManualSource(): splits is {splits!r}; give an int above 0")
        self.name = name
        self._topic = ManualTopic(splits)

    @property
    def default_name(self) -> str:
        return self.name

    def send(self, value: Record, timestamp: int | None = None, split: int = 0) -> None:
        """One record, with its event time or without."""
        self._add((value, timestamp), split)

    def send_all(self, values: Iterable[Record], split: int = 0) -> None:
        """Several records without timestamps."""
        for value in values:
            self.send(value, None, split)

    def advance_watermark(self, timestamp_ms: int, split: int | None = None) -> None:
        """No record with this timestamp or an earlier one follows; None: in no split."""
        for number in range(len(self._topic.logs)) if split is None else (split,):
            log = self._log(number)
            if log.watermark_ms is not None and timestamp_ms < log.watermark_ms:
                raise HarnessMisused(
                    f"the watermark of {self.name!r} would go back from {log.watermark_ms} to "
                    f"{timestamp_ms}; watermarks only advance"
                )
            log.watermark_ms = timestamp_ms
            self._add(Watermark(timestamp_ms), number)

    def mark_idle(self, split: int = 0) -> None:
        """Event time goes on without it, until the next record."""
        self._add(StreamStatus(active=False), split)

    def end(self) -> None:
        """Nothing follows."""
        for log in self._topic.logs:
            log.has_ended = True
        self._changed()

    def sent(self) -> tuple[int, ...]:
        """How much is in each split."""
        return tuple(len(log.entries) for log in self._topic.logs)

    def skip(self, sent: Sequence[int]) -> None:
        """Another source like this has sent so much before, and its readers go on after that."""
        for log, count in zip(self._topic.logs, sent, strict=False):
            missing = count - len(log.entries)
            log.entries[:0] = [(None, None)] * missing

    def on_change(self, call: Callable[[], None]) -> None:
        """Call it after everything that is sent: the run that reads it lets its tasks work."""
        self._topic.on_change = call

    # The source.

    def splits(self, parallelism: int) -> Sequence[int]:
        return range(len(self._topic.logs))

    def open(self, split: object, position: object, context: ConnectorContext) -> SplitReader:
        assert isinstance(split, int)
        assert position is None or isinstance(position, int)
        return ManualReader(self._topic.logs[split], position or 0, context.wake)

    def _add(self, entry: Entry, split: int) -> None:
        log = self._log(split)
        if log.has_ended:
            raise HarnessMisused(f"{self.name!r} has ended; send() comes before end()")
        log.entries.append(entry)
        self._changed()

    def _log(self, split: int) -> "ManualLog":
        if not 0 <= split < len(self._topic.logs):
            count = len(self._topic.logs)
            raise HarnessMisused(f"{self.name!r} has no split {split}; it has {count}, from 0 on")
        return self._topic.logs[split]

    def _changed(self) -> None:
        for log in self._topic.logs:
            log.wake()
        self._topic.on_change()


class ManualTopic(ByReference):
    """The logs of what was sent; they are outside of the job."""

    def __init__(self, splits: int) -> None:
        self.logs = [ManualLog() for _ in range(splits)]
        self.on_change: Callable[[], None] = lambda: None

    def _anew(self) -> tuple[Any, ...]:
        logs = [log.alone() for log in self.logs]
        return ManualTopic, (len(self.logs),), {"logs": logs}


class ManualLog:
    """The log of one split."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.has_ended = False
        self.watermark_ms: int | None = None
        self.wake: Callable[[], None] = lambda: None
        """Wakes the reader that reads it now."""

    def alone(self) -> "ManualLog":
        """A copy without its reader."""
        log = ManualLog()
        log.entries, log.has_ended = list(self.entries), self.has_ended
        return log


def next_entries(entries: Sequence[Entry]) -> tuple[Bundle | Watermark | StreamStatus, int]:
    """The records in front, or one element that is no record; and how many entries that is."""
    first = entries[0]
    if not isinstance(first, tuple):
        return first, 1
    rows = list(takewhile(lambda entry: isinstance(entry, tuple), entries))
    records, timestamps = map(list, zip(*rows, strict=True))
    untimed = all(timestamp is None for timestamp in timestamps)
    return Bundle(records, None if untimed else timestamps), len(rows)


class ManualReader(SplitReader):
    """The position is the index of the next entry."""

    def __init__(self, log: ManualLog, at: int, wake: Callable[[], None]) -> None:
        self._log = log
        self._at = at
        log.wake = wake

    def poll(self, limit: int) -> Bundle | Watermark | StreamStatus | list[Record] | None:
        entries = self._log.entries
        if self._at == len(entries):
            return None if self._log.has_ended else []
        taken, count = next_entries(entries[self._at : self._at + limit])
        self._at += count
        return taken

    def wait_ms(self) -> float:
        return inf

    def position(self) -> int:
        return self._at
