"""Records that an operator leaves out: those that fail, and those that come too late.

Failures, with an error policy: operators try whole bundles and go on after the record that failed,
so a record that does not fail costs nothing. Law: only what user code has raised for one record is
left out, never an error of Headgate's own or of an operator downstream, a cancellation, ``exit()``
or a lack of memory. The first failure of an operator is logged with its traceback, later ones are
counted in a line now and then. A task that leaves out too many records in a row without a reader
fails.

Late records go to a side output, or are counted and dropped. Law: the late records of a bundle
leave together, with their times. What is dropped is counted for the whole operator, with how much
too late the latest came, and written to the log: at once, then ever less often.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from headgate.base.elements import MAX_WATERMARK_MS, Bundle, Record, error_text
from headgate.base.errors import (
    BatchUnfit,
    ConnectorError,
    HeadgateError,
    RecordsFailing,
    RecordUnfit,
    raise_user_error,
    shown,
)
from headgate.base.values import own
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.operator import Output
from headgate.functions.error_policy import DeadLetter, ErrorPolicy, OnError

LATE_METRIC: Final = "numLateRecordsDropped"
FIRST_PAUSE_MS: Final = 60_000.0
LONGEST_PAUSE_MS: Final = 3_600_000.0

MOST_RAW_BYTES: Final = 64 * 1024
MOST_REASON_CHARS: Final = 2_000

T = TypeVar("T")


class WarningPace:
    """When to log what happens over and over: at once, then ever less often.

    Law: the pauses double from a minute to an hour, and nothing that was counted is lost: the next
    line has it, or the one at the end.
    """

    def __init__(self) -> None:
        self._unwritten = 0
        self._pause_ms = FIRST_PAUSE_MS
        self._next_ms = -math.inf

    @property
    def has_begun(self) -> bool:
        """Whether there was a first line."""
        return self._next_ms > -math.inf

    def count(self, number: int, now_ms: float) -> int:
        """So many more; returns how many the line is about that is due now, 0: none is."""
        self._unwritten += number
        if now_ms < self._next_ms:
            return 0
        if self.has_begun:
            self._pause_ms = min(2 * self._pause_ms, LONGEST_PAUSE_MS)
        self._next_ms = now_ms + self._pause_ms
        return self.rest()

    def rest(self) -> int:
        """How many no line was about yet; from now on they count as written."""
        rest, self._unwritten = self._unwritten, 0
        return rest


class RecordFailures:
    """What becomes of the records that one operator of a task fails for.

    ``letters_are_read``: somebody reads its dead letters.
    """

    def __init__(
        self, policy: ErrorPolicy, operator: str, output: Output, letters_are_read: bool
    ) -> None:
        assert policy.on_error is not OnError.FAIL, "without failures nothing is to be done"
        self.skipped = 0
        self.dead_letters = 0
        self._tag = policy.tag if letters_are_read else None
        self._most_in_a_row = policy.most_in_a_row if self._tag is None else 0
        self.operator = operator
        self._output = output
        self._context: OperatorContext | None = None
        self._pace = WarningPace()

    def open(self, context: OperatorContext) -> None:
        """Before the first record."""
        self._context = context

    def streak(self) -> "FailureStreak":
        """For one place where records can fail, such as the calls of the function."""
        return FailureStreak(self, self._most_in_a_row)

    def malformed(self, raw: object, error: Exception) -> None:
        """A source names what is no record; see ``ConnectorContext``."""
        if not isinstance(raw, bytes | bytearray | memoryview | str):
            self.unfit(raw, error)
            return
        _raise_if_fatal(error, isinstance(error, ConnectorError | RecordUnfit))
        self._leave_out(error, None, raw, None)

    def unfit(self, record: Record, error: Exception) -> None:
        """A record, of whatever type, has no form where it is to be written or packed."""
        _raise_if_fatal(error, isinstance(error, ConnectorError | RecordUnfit))
        self._leave_out(error, record, None, None)

    def check(self, error: Exception) -> None:
        """Raise an error that must not be passed over, before its record is left out."""
        _raise_if_fatal(error)

    def failed(self, error: Exception, record: Record, timestamp_ms: int | None) -> None:
        """User code has raised for a record; raises if that must not be passed over."""
        _raise_if_fatal(error)
        self._leave_out(error, record, None, timestamp_ms)

    def close(self) -> None:
        """Log what was not logged yet."""
        rest = self._pace.rest()
        if rest:
            self._log(f"{_more(rest)} {self._outcome}", None)

    def _leave_out(
        self, error: Exception, record: Record, raw: object, timestamp_ms: int | None
    ) -> None:
        if self._tag is None:
            self.skipped += 1
        else:
            self._emit(error, record, raw, timestamp_ms, self._tag)
            self.dead_letters += 1
        self._count_in_log(error, record if raw is None else raw)

    def _emit(
        self, error: Exception, record: Record, raw: object, timestamp_ms: int | None, tag: str
    ) -> None:
        context = self._context
        assert context is not None, "a record has failed before the operator was open"
        cut: list[str] = []
        letter = DeadLetter(
            _owned(record, cut),
            None if raw is None else _cut_bytes(raw, cut),
            self.operator,
            context.task.subtask,
            _cut_reason(error, cut),
            class_name(error),
            timestamp_ms,
            "; ".join(cut),
        )
        times: list[int | None] | None = None if timestamp_ms is None else [timestamp_ms]
        try:
            self._output.collect_side(tag, Bundle([letter], times))
        except Exception as trouble:
            raise_user_error(trouble, self.operator, "when a dead letter was sent on")

    def _count_in_log(self, error: Exception, record: object) -> None:
        context = self._context
        assert context is not None, "a record has failed before the operator was open"
        is_first = not self._pace.has_begun
        count = self._pace.count(1, context.elapsed_ms())
        if is_first:
            text = f"the record {shown(record)} was {self._outcome} because of {shown_error(error)}"
            self._log(" ".join(text.split()) + "; later ones are only counted", error)
        elif count:
            text = f"{_more(count)} {self._outcome}, the last because of "
            self._log(text + shown_error(error), None)

    @property
    def _outcome(self) -> str:
        return "skipped" if self._tag is None else f"sent to the dead letters {self._tag!r}"

    def _log(self, text: str, error: Exception | None) -> None:
        assert self._context is not None
        task = self._context.task
        where = f"operator {self.operator!r} ({task.subtask + 1}/{task.parallelism}): "
        self._context.warn(where + text, error)


class FailureStreak:
    """How many records have failed one after the other in one place."""

    __slots__ = ("_failures", "_length", "_most", "_next_place")

    def __init__(self, failures: RecordFailures, most: int) -> None:
        self._failures = failures
        self._most = most
        self._length = 0
        self._next_place = 0
        """The place in the bundle after the record that failed last."""

    def failed(self, error: Exception, record: Record, timestamp_ms: int | None = None) -> None:
        """The next record has failed; raises if that must not be passed over."""
        self._failures.failed(error, record, timestamp_ms)
        self._count(error)

    def malformed(self, raw: object, error: Exception) -> None:
        """A source cannot read this; see ``failed``."""
        self._failures.malformed(raw, error)
        self._count(error)

    def unfit(self, record: Record, error: Exception) -> None:
        """A record cannot be written or packed; see ``failed``."""
        self._failures.unfit(record, error)
        self._count(error)

    def failed_at(self, error: Exception, bundle: Bundle, place: int) -> None:
        """The record at this place of the bundle at hand has failed; see ``failed``."""
        if place != self._next_place:
            self._length = 0
        self._next_place = place + 1
        times = bundle.timestamps
        self.failed(error, bundle.records[place], None if times is None else times[place])

    def ended(self, bundle: Bundle) -> None:
        """The bundle is through."""
        if self._next_place < len(bundle.records):
            self._length = 0
        self._next_place = 0

    def passed(self) -> None:
        """A record has not failed."""
        self._length = 0

    def _count(self, error: Exception) -> None:
        self._length += 1
        if self._length == self._most:
            operator = self._failures.operator
            raise RecordsFailing(operator, self._length, shown_error(error)) from error


def attempt(
    source: Iterator[Record],
    each: Callable[[Iterator[Record]], Iterable[T]],
    bundle: Bundle,
    streak: FailureStreak,
) -> tuple[list[T], list[int]]:
    """What ``each`` makes of the records of a bundle, and the places of those that failed.

    ``each`` yields one result for each record of ``source``. It is a generator, so that a
    StopIteration of the user's does not end it silently; after a failure it is called again with
    the same source, which has gone on. ``list.extend`` keeps what came before an error.
    """
    results: list[T] = []
    failed: list[int] = []
    while True:
        try:
            results.extend(each(source))
            break
        except Exception as error:
            place = len(results) + len(failed)
            streak.failed_at(error, bundle, place)
            failed.append(place)
    streak.ended(bundle)
    return results, failed


def without(values: list[T], places: list[int]) -> list[T]:
    """The values, without those at some places."""
    if not places:
        return values
    out = set(places)
    return [value for place, value in enumerate(values) if place not in out]


def bundle_without(bundle: Bundle, places: list[int]) -> Bundle:
    """The records of a bundle, without those at some places."""
    times = bundle.timestamps
    return Bundle(
        without(bundle.records, places), None if times is None else without(times, places)
    )


def _more(count: int) -> str:
    return "1 more record was" if count == 1 else f"{count:,} more records were"


def _raise_if_fatal(error: Exception, is_about_record: bool = False) -> None:
    """Raise what is never left out. ``is_about_record``: an error of ours that may be."""
    is_about_record = is_about_record or isinstance(error, BatchUnfit)
    is_ours = isinstance(error, HeadgateError) and not is_about_record
    if is_ours or isinstance(error, MemoryError) or _is_own_bug(error):
        raise error


def _is_own_bug(error: Exception) -> bool:
    """Whether an assertion of Headgate's own has failed."""
    trace = error.__traceback__
    if not isinstance(error, AssertionError) or trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    return str(trace.tb_frame.f_globals.get("__name__", "")).startswith("headgate.core.")


def class_name(error: BaseException) -> str:
    """The name of an error's class, with the module unless that is Python's own."""
    kind = type(error)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )


def shown_error(error: BaseException) -> str:
    """Class and message, in one line."""
    return f"{type(error).__name__}: {_cut_reason(error, [])}"


def _cut_reason(error: BaseException, cut: list[str]) -> str:
    try:
        text = str(error)
    except Exception:  # of a class of the user's
        text = error_text(error)
    text = text.encode(errors="backslashreplace").decode()
    if len(text) > MOST_REASON_CHARS:
        cut.append(f"reason: the first {MOST_REASON_CHARS:,} of {len(text):,} characters")
        text = text[:MOST_REASON_CHARS]
    return text


def _cut_bytes(raw: object, cut: list[str]) -> bytes:
    if isinstance(raw, str):
        data = raw[: MOST_RAW_BYTES + 1].encode(errors="surrogatepass")
        size, unit = len(raw), "characters"
    else:
        assert isinstance(raw, bytes | bytearray | memoryview)
        view = memoryview(raw).cast("B")
        data, size, unit = bytes(view[: MOST_RAW_BYTES + 1]), len(view), "bytes"
    if len(data) > MOST_RAW_BYTES:
        data = data[:MOST_RAW_BYTES]
        cut.append(f"raw: the first {MOST_RAW_BYTES:,} bytes of {size:,} {unit}")
    return data


def _owned(record: Record, cut: list[str]) -> Record:
    """Emission by value: nobody changes the record of a letter afterwards."""
    try:
        return own(record)
    except Exception as error:
        cut.append(
            f"record: a {type(record).__name__}, which cannot be copied ({shown_error(error)})"
        )
        return None


class LateDrops:
    """What one operator of a task has dropped because it came too late."""

    def __init__(self, context: OperatorContext) -> None:
        self.count = 0
        self.most_ms = 0
        """How much too late the latest came: had the watermark been so much lower, or were so much
        more lateness allowed, nothing would have been dropped. 0: event time had ended."""
        self.last_ms = 0
        """How much too late the last late records came, also those that went to a side output."""
        self._context = context
        self._pace = WarningPace()
        context.metrics.gauge(LATE_METRIC, lambda: self.count)

    def add(self, count: int, late_ms: int) -> None:
        """So many more, the latest of which came ``late_ms`` too late."""
        self.count += count
        self.most_ms = max(self.most_ms, late_ms)
        self._write(self._pace.count(count, self._context.elapsed_ms()))

    def close(self) -> None:
        """Write of those that no line was about yet."""
        self._write(self._pace.rest())

    def _write(self, count: int) -> None:
        if not count:
            return
        task = self._context.task
        dropped = f"{count:,} records came too late and were dropped"
        if count == 1:
            dropped = "1 record came too late and was dropped"
        self._context.warn(
            f"operator {self._context.operator!r} ({task.subtask + 1}/{task.parallelism}): "
            f"{dropped}, {self.count:,} so far, {self._how_late}, or give late records a side "
            f"output",
            None,
        )

    @property
    def _how_late(self) -> str:
        if not self.most_ms:
            return (
                "after the end of event time; do not let event time end in one input while "
                "another one still has records"
            )
        return (
            f"up to {self.most_ms:,} ms too late; allow more out-of-orderness in the watermark "
            f"strategy or more lateness"
        )


def how_late(watermark_ms: int, until_ms: int) -> int:
    """By how much something is too late that the watermark ``until_ms`` is the first to exclude.

    0 after the end of event time: no lateness would have helped.
    """
    return 0 if watermark_ms == MAX_WATERMARK_MS else watermark_ms - until_ms + 1


class LateRecords:
    """The late records of one input; ``tag``: the id of their side output, None: dropped."""

    def __init__(self, tag: str | None, output: Output, drops: LateDrops) -> None:
        self._tag = tag
        self._output = output
        self._drops = drops
        self._records: list[Record] = []
        self._times: list[int | None] = []
        self._until_ms = MAX_WATERMARK_MS

    def take(self, record: Record, timestamp: int, until_ms: int) -> None:
        """One of them; with a watermark below ``until_ms`` it would not have been late."""
        self._records.append(record)
        self._times.append(timestamp)
        if until_ms < self._until_ms:
            self._until_ms = until_ms

    def flush(self, watermark_ms: int) -> None:
        """Send on what was collected, or count it."""
        if not self._records:
            return
        late = Bundle(self._records, self._times)
        self._drops.last_ms = how_late(watermark_ms, self._until_ms)
        self._records, self._times, self._until_ms = [], [], MAX_WATERMARK_MS
        if self._tag is None:
            self._drops.add(len(late.records), self._drops.last_ms)
        else:
            self._output.collect_side(self._tag, late)
