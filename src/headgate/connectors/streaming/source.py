"""A named input of a job, which Spark's streaming queries write.

The driver follows the log of the input and hands its parts out to the tasks by demand. Law: each
entry of a query is read once, in the order of its micro-batches, and the last one of each query is
kept in checkpoints. A part is marked when it was read, so that queries know how much is unread, and
removed when a completed checkpoint covers it.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa

from headgate.base.errors import PathUnusable, StreamUnfit
from headgate.connectors.arrow.lake_source import (
    Batches,
    DataFileReader,
    FollowingEnumerator,
    RefusingReader,
)
from headgate.connectors.paths import AnyPath
from headgate.connectors.streaming.stream_end import MOST_BYTES, StreamEnd, stream_end
from headgate.connectors.streaming.stream_log import StreamLog, part_batch, part_prefix
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Position, Source, SplitReader

MOST_BATCHES: Final = 100
LOCAL_MS: Final = 50
STORE_MS: Final = 1000
"""Between two looks at the log, on this machine and in a store."""
TIDY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class InputPart:
    """A part of the log, or why there is none."""

    uri: str
    name: str
    rows: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What an enumerator keeps in checkpoints."""

    log: str
    numbers: tuple[tuple[str, int], ...]
    """The last entry of each origin whose parts were handed out."""


class StreamingInput(Source):
    """Rows that streaming queries of Spark write into the job, with the names of their columns.

    ::

        orders = env.from_source(StreamingInput("orders", "id long, price double"))

        query = df.writeStream.format("headgate").option("job", "shop").option("input", "orders")

    Several queries may write; the rows of each come in the order of its micro-batches, if the
    source has one task. A query waits while more than ``most_bytes`` or ``most_batches`` are
    unread. ``path`` is the folder of the log, which the job, its workers and Spark's executors
    reach; None: one below the checkpoint folder, or a private one on this machine.
    """

    bounded = False
    splits_end = True
    untimed = True
    finds_more = True

    def __init__(
        self,
        name: str,
        schema: object,
        *,
        path: "AnyPath | None" = None,
        most_bytes: int = MOST_BYTES,
        most_batches: int = MOST_BATCHES,
    ) -> None:
        limits = {"most_bytes": most_bytes, "most_batches": most_batches}
        self.stream = stream_end("input", name, schema, path, limits)

    @property
    def default_name(self) -> str:
        return f"Spark input {self.stream.name}"

    def create_enumerator(self, parallelism: int, position: Position) -> "InputEnumerator":
        return InputEnumerator(self.stream, position)

    def open(self, split: object, position: Position, context: ConnectorContext) -> SplitReader:
        assert isinstance(split, InputPart), split
        if split.problem:
            return RefusingReader(StreamUnfit(split.problem))
        assert isinstance(self.stream.schema, pa.Schema)
        batches = partial(part_batches, self.stream, split)
        return DataFileReader(batches, self.stream.schema.names, position, split.rows)

    def splits_finished(self, splits: Sequence[object]) -> None:
        """A completed checkpoint covers them."""
        for split in splits:
            assert isinstance(split, InputPart), split
            if split.name:
                StreamLog(split.uri).folder.remove(f"parts/{split.name}")


def part_batches(stream: StreamEnd, part: InputPart, skipped: int) -> Batches:
    """The rows of a part after so many, with the columns of the input."""
    log, names = StreamLog(part.uri), stream.schema.names
    try:
        for batch in log.read_part(part.name, skipped):
            yield batch.select(names)
    except PathUnusable as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        raise StreamUnfit(
            f"{stream.shown}: a part of its log is gone ({error.path}): a newer checkpoint than "
            f"the one that is restored has covered it, or somebody has removed it; go on from the "
            f"newest checkpoint"
        ) from error
    log.mark_read(part.name)


class InputEnumerator(FollowingEnumerator):
    """Follows the log, in the driver."""

    unfit = StreamUnfit

    def __init__(self, stream: StreamEnd, position: Position) -> None:
        assert position is None or isinstance(position, _Seen), position
        super().__init__(position)
        self._stream = stream
        self._log: StreamLog | None = None
        self._tidied = 0.0
        self._begins = position is None
        """Nothing was handed out yet, by this one or before the checkpoint."""
        self._untrimmed: dict[str, dict[int, tuple[str, ...]]] = {}
        """Parts of the entries that were handed out, by origin and number."""

    def find(self) -> list[InputPart]:
        log = self._log or self._open()
        self._check_owner(log)
        if time.monotonic() - self._tidied > TIDY_S:
            self._tidy(log)
            self._tidied = time.monotonic()
        return list(self._new_parts(log))  # last: what follows could fail, and lose them

    def refusal(self, problem: str) -> InputPart:
        return InputPart(self._stream.uri, "", 0, problem)

    def _open(self) -> StreamLog:
        log = self._stream.log()
        info, trimmed = log.info(), log.removed().numbers
        if info is None:
            raise StreamUnfit(f"{self._stream.shown}: its log {log.folder.shown()} is gone")
        if self.seen is None:
            self.seen = _Seen(info.log, tuple(trimmed.items()))
        elif self.seen.log != info.log:
            raise StreamUnfit(
                f"{self._stream.shown}: the checkpoint belongs to another log than the one in "
                f"{log.folder.shown()}; set execution.checkpointing.dir as it was when the "
                f"checkpoint was taken, or give the input the same path=..."
            )
        numbers = dict(self.seen.numbers)
        for origin, number in trimmed.items():
            if number > numbers.get(origin, -1):
                raise StreamUnfit(
                    f"{self._stream.shown}: the checkpoint has read query {origin} up to "
                    f"micro-batch {numbers.get(origin, -1)}, and those up to {number} were removed "
                    f"when a newer checkpoint had covered them; go on from the newest checkpoint"
                )
        self.interval_ms = LOCAL_MS if log.folder.is_local else STORE_MS
        for origin, present in log.entries().items():
            for number in present:
                if number <= numbers.get(origin, -1):
                    self._remember(log, origin, number)
        self._log = log  # last: parts of entries that are not remembered would be removed
        return log

    def _check_owner(self, log: StreamLog) -> None:
        owner = log.owner()
        if owner is not None and owner.token != self._stream.owner:
            raise StreamUnfit(self._stream.taken_over(log, owner))
        if owner is not None and owner.problem:
            raise StreamUnfit(owner.problem)

    def _new_parts(self, log: StreamLog) -> Iterator[InputPart]:
        numbers = dict(self.seen.numbers)
        entries = log.entries()
        if any(_have_gap(found, numbers.get(origin, -1)) for origin, found in entries.items()):
            entries = log.entries()  # made while they were listed: the later is seen, not the first
        # An earlier job may have read parts, and was killed before it could trim their entries.
        there = log.parts() if self._begins else None
        for origin, present in entries.items():
            for number in present:
                if number > numbers.get(origin, -1):
                    for name, rows in self._remember(log, origin, number):
                        if there is None or name in there:
                            yield InputPart(self._stream.uri, name, rows)
                    numbers[origin] = number
        self.seen = _Seen(self.seen.log, tuple(numbers.items()))
        self._begins = False

    def _remember(self, log: StreamLog, origin: str, number: int) -> list[tuple[str, int]]:
        entry = log.read_entry(origin, number)
        parts = [] if entry is None else [(part.name, part.rows) for part in entry.parts]
        names = tuple(name for name, _ in parts)
        self._untrimmed.setdefault(origin, {})[number] = names
        return parts

    def _tidy(self, log: StreamLog) -> None:
        """Trim entries whose parts the tasks have removed, and drop parts that none names."""
        self._forget_empty(log)
        there = log.parts()
        due: dict[str, int] = {}
        for origin, entries in self._untrimmed.items():
            for number in sorted(entries):
                if any(name in there for name in entries[number]):
                    break
                if entries[number]:  # an empty one alone tells of no checkpoint
                    due[origin] = number
        if due:
            log.trim(due)
            for origin, last in due.items():
                left = {n: parts for n, parts in self._untrimmed[origin].items() if n > last}
                self._untrimmed[origin] = left
        numbers = dict(self.seen.numbers)
        named = {
            name
            for entries in self._untrimmed.values()
            for parts in entries.values()
            for name in parts
        }
        for name in there:
            origin, _, batch = part_batch(name).rpartition(".")
            if batch.isdigit() and int(batch) <= numbers.get(origin, -1) and name not in named:
                log.folder.remove(f"parts/{name}")  # of an attempt that was not committed

    def _forget_empty(self, log: StreamLog) -> None:
        """Remove entries without parts, but the last: it shows which micro-batch comes next.

        A query that filters may bring nothing else for days. They are not noted as trimmed, for an
        older checkpoint misses nothing of them.
        """
        for origin, entries in self._untrimmed.items():
            for number in sorted(entries)[:-1]:
                if not entries[number]:
                    log.forget_empty(origin, number)
                    del entries[number]


def _have_gap(numbers: Sequence[int], last: int) -> bool:
    """Whether entries are missing between the last one that was read and the newest."""
    newer = [number for number in numbers if number > last]
    return bool(newer) and newer[-1] - last != len(newer)


def unread(log: StreamLog, origin: str, number: int) -> tuple[int, int]:
    """Bytes and micro-batches that wait for the job, without those of this one.

    What is not committed does not wait: it may never be, and two queries that write at the same
    time would wait for each other.
    """
    read = log.marked_read()
    committed = {part_prefix(query, n) for query, found in log.entries().items() for n in found}
    committed.discard(part_prefix(origin, number))
    waiting = {
        name: size
        for name, size in log.parts().items()
        if name not in read and f"{part_batch(name)}." in committed
    }
    return sum(waiting.values()), len(set(map(part_batch, waiting)))
