"""The ordinary programs as dataflows of Bytewax, for ``python -m bytewax.testing -p 2``.

Only an interpreter that has Bytewax imports this. Each source part notes when it gave its first
records, each sink part when it was closed; ``time.monotonic_ns`` is the same clock for all
processes. Records that are already pairs of a key and a value stay what they are.
"""

import json
import pickle
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import StatefulLogic
from bytewax.operators.windowing import EventClock, TumblingWindower, fold_window
from bytewax.outputs import DynamicSink, StatelessSinkPartition

from benchmarks.keyed_count import as_pair
from benchmarks.measured_job import split_evenly
from benchmarks.ordinary_programs import (
    CLASSIFY,
    GAP_MS,
    WINDOW_MS,
    Records,
    Visit,
    is_interesting,
    is_payment,
    make_visit,
    order_of,
    page_of,
    parse_event,
    parse_sale,
    user_of,
    user_of_event,
    words_of_log,
)
from benchmarks.peers.bytewax_functions import (
    Event,
    add_cents,
    add_order_or_payment,
    add_time,
    add_to_totals,
    add_up,
    add_visit_row,
    count_alarm,
    count_page,
    keep_last,
    market_and_sum,
    market_key,
    order_and_counts,
    order_as_pair,
    payment_as_pair,
    reading_key,
    user_of_visit_row,
    visit_row,
)
from benchmarks.peers.compared import COMPARED, with_length

PROCESSES: Final = 2
BATCH: Final = 1000
DELAY: Final = timedelta(days=1)
DELAY_MS: Final = DELAY // timedelta(milliseconds=1)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
TIME_TO_LIVE: Final = timedelta(hours=1)


def flow(name: str, records: int, folder: str, keeps: bool) -> Dataflow:
    """Reports go to the folder, and what came out, if that is kept."""
    made = Dataflow(name)
    stream = op.input("in", made, MadeInput(name, records, Path(folder)))
    op.output("out", TWINS[name](stream), ReportSink(Path(folder), keeps))
    return made


def count_words(words: Any) -> Any:
    return op.stateful_map("count", op.map("pair", words, as_pair), add_up)


def count_lengths(words: Any) -> Any:
    return op.stateful_map("count", op.map("pair", words, with_length), add_up)


def json_totals(lines: Any) -> Any:
    events = op.filter("interesting", op.map("parse", lines, parse_event), is_interesting)
    by_user = op.key_on("user", events, user_of_event)
    totals = op.stateful_map("totals", by_user, add_to_totals)
    return op.map("line", op.key_rm("totals_only", totals), json.dumps)


def json_windows(lines: Any) -> Any:
    by_market = op.key_on("market", op.map("parse", lines, parse_sale), market_key)
    sums = fold_window(
        *("sum", by_market),
        EventClock(time_of_event, DELAY),
        TumblingWindower(timedelta(milliseconds=WINDOW_MS), EPOCH),
        *(int, add_cents, int.__add__),
        ordered=False,
    )
    return op.map("market_and_sum", sums.down, market_and_sum)


def time_of_event(event: Any) -> datetime:
    return datetime.fromtimestamp(event.at / 1000, timezone.utc)


def two_exchanges(rows: Any) -> Any:
    by_user = op.key_on("user", op.map("visit", rows, make_visit), user_of)
    visited = op.key_rm("visited", op.stateful_map("pages", by_user, count_page))
    return op.stateful_map("time", op.key_on("page", visited, page_of), add_time)


def sessions(rows: Any) -> Any:
    by_user = op.key_on("user", op.map("visit", rows, make_visit), user_of)
    return op.stateful("sessions", by_user, Session)


class Session(StatefulLogic):  # type: ignore[misc]
    """Ends when event time is a day past its end, as the watermark of the program has it.

    Bytewax has timers in processing time only, and its session windows end at each gap.
    """

    def __init__(self, resume: tuple[int, int, int] | None) -> None:
        self._visits, self._end, self._latest = resume or (0, 0, 0)

    def on_item(self, visit: Visit) -> tuple[tuple[int, ...], bool]:
        ended: tuple[int, ...] = ()
        at = visit.at
        if at > self._latest:
            self._latest = at
            if self._visits and at - DELAY_MS > self._end:
                ended = (self._visits,)
                self._visits = self._end = 0
        self._visits += 1
        if at + GAP_MS > self._end:
            self._end = at + GAP_MS
        return ended, StatefulLogic.RETAIN

    def on_eof(self) -> tuple[tuple[int, ...], bool]:
        return (self._visits,), StatefulLogic.DISCARD

    def snapshot(self) -> tuple[int, int, int]:
        return self._visits, self._end, self._latest


def log_counts(lines: Any) -> Any:
    return op.stateful_map("sum", op.flat_map("words", lines, words_of_log), add_up)


def typed_rows(rows: Any) -> Any:
    by_user = op.key_on("user", op.map("row", rows, visit_row), user_of_visit_row)
    return op.key_rm("rows", op.stateful_map("sum", by_user, add_visit_row))


def without_duplicates(events: Any) -> Any:
    first = op.stateful("first", op.key_on("order", events, order_of), FirstOnly)
    return op.key_rm("events", first)


class FirstOnly(StatefulLogic):  # type: ignore[misc]
    """Forgets an order when its time to live has passed."""

    def __init__(self, expires: datetime | None) -> None:
        self._expires = expires

    def on_item(self, event: Event) -> tuple[tuple[Event, ...], bool]:
        if self._expires is not None:
            return (), StatefulLogic.RETAIN
        self._expires = datetime.now(timezone.utc) + TIME_TO_LIVE
        return (event,), StatefulLogic.RETAIN

    def on_notify(self) -> tuple[tuple[Event, ...], bool]:
        return (), StatefulLogic.DISCARD

    def notify_at(self) -> datetime | None:
        return self._expires

    def snapshot(self) -> datetime | None:
        return self._expires


def two_streams(events: Any) -> Any:
    parts = op.branch("is_payment", events, is_payment)
    payments = op.map("payment", parts.trues, payment_as_pair)
    orders = op.map("order", parts.falses, order_as_pair)
    counts = op.stateful_map("counts", op.merge("meet", orders, payments), add_order_or_payment)
    return op.map("order_and_counts", counts, order_and_counts)


def last_values(rows: Any) -> Any:
    by_user = op.key_on("user", op.map("visit", rows, make_visit), user_of)
    return op.key_rm("means", op.stateful_map("last", by_user, keep_last))


def alarms(rows: Any) -> Any:
    by_level = op.key_on("level", op.map("classify", rows, CLASSIFY.map), reading_key)
    return op.key_rm("alarms", op.stateful_map("count", by_level, count_alarm))


TWINS: Final[dict[str, Callable[[Any], Any]]] = {
    "count-words": count_words,
    "count-lengths": count_lengths,
    "json-totals": json_totals,
    "json-windows": json_windows,
    "two-exchanges": two_exchanges,
    "sessions": sessions,
    "log-counts": log_counts,
    "typed-rows": typed_rows,
    "without-duplicates": without_duplicates,
    "two-streams": two_streams,
    "last-values": last_values,
    "alarms": alarms,
}


class MadeInput(FixedPartitionedSource):  # type: ignore[misc]
    """What a program makes for each task, made before the first record is given."""

    def __init__(self, name: str, records: int, folder: Path) -> None:
        self._name, self._records, self._folder = name, records, folder

    def list_parts(self) -> list[str]:
        return [str(task) for task in range(PROCESSES)]

    def build_part(self, step_id: str, for_part: str, resume_state: object) -> "MadePart":
        task = int(for_part)
        count = split_evenly(self._records, PROCESSES)[task]
        return MadePart(COMPARED[self._name].make(count, task), self._folder / f"began-{task}")


class MadePart(StatefulSourcePartition):  # type: ignore[misc]
    """Slices of one list."""

    def __init__(self, records: Records, began: Path) -> None:
        self._records, self._began, self._at = records, began, 0

    def next_batch(self) -> Records:
        if self._at == 0:
            self._began.write_text(str(time.monotonic_ns()))
        if self._at >= len(self._records):
            raise StopIteration
        batch = self._records[self._at : self._at + BATCH]
        self._at += len(batch)
        return batch

    def snapshot(self) -> int:
        return self._at


class ReportSink(DynamicSink):  # type: ignore[misc]
    def __init__(self, folder: Path, keeps: bool) -> None:
        self._folder, self._keeps = folder, keeps

    def build(self, step_id: str, worker_index: int, worker_count: int) -> "ReportPart":
        return ReportPart(self._folder, worker_index, self._keeps)


class ReportPart(StatelessSinkPartition):  # type: ignore[misc]
    """Drops what comes, or keeps it for a check."""

    def __init__(self, folder: Path, worker: int, keeps: bool) -> None:
        self._folder, self._worker, self._keeps = folder, worker, keeps
        self._records: Records = []

    def write_batch(self, items: Records) -> None:
        if self._keeps:
            self._records.extend(items)

    def close(self) -> None:
        ended_ns = time.monotonic_ns()
        (self._folder / f"records-{self._worker}").write_bytes(pickle.dumps(self._records))
        (self._folder / f"ended-{self._worker}").write_text(str(ended_ns))
