"""The log between a job and Spark's streaming queries: one for each named input or output.

Whoever writes appends *entries* that name files of rows (*parts*, Arrow's IPC format); whoever
reads follows them. Entries are counted for each *origin*: a streaming query with the numbers of its
micro-batches, or a writer of a sink with those of its commits. Law: an entry of an origin and a
number is written once, however often that is tried, also after it was read and removed; entries of
an origin are read in their order. ``trim`` notes what it removes before it does, so a reader that
comes back to an older place is told that it is gone. Files that cannot be read are named.
"""

import os
import re
import secrets
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Final, TypeAlias, TypeVar

import msgspec
import pyarrow as pa

from headgate.base.errors import PathUnusable, StreamUnfit
from headgate.connectors.arrow.lake_source import without_rows
from headgate.connectors.streaming.log_folder import LogFolder

Run: TypeAlias = tuple[int, int]
"""The start of the job, counted in the log, and its attempt."""

_WRITER: Final = re.compile(r"w(\d+)-(\d+)-(\d+)-[0-9a-f]+")


def writer_name(run: Run, subtask: int) -> str:
    """An origin that no other writer has."""
    return f"w{run[0]}-{run[1]}-{subtask}-{secrets.token_hex(4)}"


def run_of(origin: str) -> Run | None:
    """The run of a writer; None: it is a query."""
    match = _WRITER.fullmatch(origin)
    return None if match is None else (int(match[1]), int(match[2]))


class Committed(msgspec.Struct, frozen=True, order=True):
    """The newest checkpoint of which rows are or were in the log, and whose it is."""

    run: Run = (0, 0)
    checkpoint: int = 0
    """0: there is none."""


class RemovedEntries(msgspec.Struct, frozen=True):
    """What of a log was read, and is removed or about to be.

    Law: when a checkpoint of a run is committed, every commit of earlier runs is done, because all
    tasks repeat what they restore before they write. So what was read of earlier runs is noted as
    the *floor* above them and their count, however often a job was restarted. Queries are no
    writers; each has a note of its own, for a stopped query looks like one that is gone.
    """

    numbers: dict[str, int] = {}
    """Up to which number, of each origin."""
    floor: Run = (0, 0)
    """All of earlier runs was read."""
    folded: int = 0
    """How many entries those were: writers count them from 1."""
    last: Committed = Committed()

    def covers(self, origin: str, number: int) -> bool:
        return self._is_below(origin) or self.numbers.get(origin, -1) >= number

    def is_behind(self, read: Mapping[str, int], folded: int) -> bool:
        """Whether somebody who has read this has missed some of what is below the floor."""
        below = sum(number for origin, number in read.items() if self._is_below(origin))
        return folded + below < self.folded

    def _is_below(self, origin: str) -> bool:
        run = run_of(origin)
        return run is not None and run < self.floor

    def merged(
        self, read: Mapping[str, int], gone: Iterable[Committed], left: Iterable[str]
    ) -> "RemovedEntries":
        """With what was read now: ``gone`` are its checkpoints, ``left`` the origins of the rest.

        An entry without a checkpoint tells nothing of earlier runs: another task of its own run may
        not have repeated their commits yet.
        """
        last = max((each for each in gone if each.checkpoint), default=self.last)
        last = max(last, self.last)
        runs = [run for run in map(run_of, left) if run is not None]
        floor = max(self.floor, min([*runs, last.run]))
        numbers = {**self.numbers}
        for origin, number in read.items():
            numbers[origin] = max(number, numbers.get(origin, -1))
        kept = {o: n for o, n in numbers.items() if (run := run_of(o)) is None or run >= floor}
        folded = self.folded + sum(numbers.values()) - sum(kept.values())
        return RemovedEntries(kept, floor, folded, last)


VERSION: Final = 2
PART_BYTES: Final = 32 << 20
"""A part is ended by the batch that reaches this size in memory."""
STREAM: Final = "stream.json"
OWNER: Final = "owner.json"
TRIMMED: Final = "trimmed.json"
ENTRIES: Final = "entries"
PARTS: Final = "parts"
READ: Final = "read"
TAKEN: Final = "taken.json"
_FOLDERS: Final = ("", ENTRIES, PARTS, READ)
_ENTRY: Final = re.compile(r"([A-Za-z0-9-]+)\.(\d{20})\.json")
RUNNING: Final = "RUNNING"

Read = TypeVar("Read")


class LogPart(msgspec.Struct, frozen=True):
    """A file of rows."""

    name: str
    rows: int
    bytes: int


class LogEntry(msgspec.Struct, frozen=True):
    """What one micro-batch of a query, or one commit of a sink's writer, has brought."""

    origin: str
    number: int
    parts: tuple[LogPart, ...]
    checkpoint: int = 0
    """The first of a job that holds it; 0: of a query, or of the end of a job's input."""

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)


class StreamInfo(msgspec.Struct, frozen=True):
    """What a stream is; it stays the same as long as there is the log."""

    log: str
    """An id that no other log has."""
    kind: str
    """input or output"""
    name: str
    schema: bytes
    """As Arrow writes it."""
    columns: tuple[tuple[str, str], ...]
    """Names, and types in the words of whoever has declared them."""
    most_bytes: int
    most_batches: int
    """So much may be unread before whoever writes waits."""
    version: int = VERSION

    @property
    def arrow_schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(self.schema))


class StreamOwner(msgspec.Struct, frozen=True):
    """The job at one end of the stream."""

    token: str
    """Identifies this start of the job."""
    job: str
    name: str
    host: str
    pid: int
    state: str = RUNNING
    """The name of the job's status."""
    problem: str = ""
    """Why it has failed."""
    since: str = ""
    """When its process was started, as the kernel counts; empty: not known."""
    start: int = 0
    """The number of this start, counted over all jobs with this log."""
    begun: int = 0
    """The start that went on from no checkpoint; those since then have one history."""

    @property
    def has_ended(self) -> bool:
        """Also if its driver is gone, as far as that can be seen from here."""
        return self.state != RUNNING or self.is_dead

    @property
    def is_dead(self) -> bool:
        if self.host != this_host():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return bool(self.since) and process_since(self.pid) not in ("", self.since)

    def lives_on(self, host: str) -> bool:
        """Whether it surely runs, on this host."""
        return self.host == host and not self.has_ended

    def ending(self) -> str:
        """How it has ended, in a few words."""
        if self.state == RUNNING:
            return f"the driver of job {self.job} ({self.name}), process {self.pid}, is gone"
        why = f": {self.problem}" if self.problem else ""
        return f"job {self.job} ({self.name}) is {self.state.lower()}{why}"


class StreamLog:
    """Reads and writes one log; it holds nothing open, and can be used by any process."""

    def __init__(self, uri: str) -> None:
        self.folder = LogFolder(uri)
        self.uri = self.folder.uri

    # What it is, and whose.

    def info(self) -> StreamInfo | None:
        """None: there is no log."""
        data = self.folder.read(STREAM)
        if data is None:
            return None
        version = self._decode(STREAM, data, _Version).version  # the rest may have another form
        if version != VERSION:
            raise StreamUnfit(
                f"{self.folder.shown()} was written by another version of Headgate (its format is "
                f"{version}, this one reads {VERSION}); use the same for job and queries"
            )
        return self._decode(STREAM, data, StreamInfo)

    def create(self, info: StreamInfo) -> StreamInfo:
        """Make the log if there is none; what it is then."""
        for folder in _FOLDERS:
            self.folder.make(folder)
        self.folder.put(STREAM, msgspec.json.encode(info))
        found = self.info()
        assert found is not None
        return found

    def tidy(self) -> None:
        """Remove half made files of processes that were killed."""
        self.folder.tidy(*_FOLDERS)

    def describe(self, info: StreamInfo) -> None:
        """Change limits or schema of a log."""
        self.folder.replace(STREAM, msgspec.json.encode(info))

    def owner(self) -> StreamOwner | None:
        """None: it has none yet."""
        return self._read(OWNER, StreamOwner)

    def set_owner(self, owner: StreamOwner) -> None:
        self.folder.replace(OWNER, msgspec.json.encode(owner))

    # Parts.

    def write_parts(
        self, prefix: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
    ) -> list[LogPart]:
        """Files with these rows, durable; on an error none is left."""
        written: list[LogPart] = []
        try:
            for group in _groups(batches):
                name = f"{prefix}{secrets.token_hex(6)}.arrow"
                rows = sum(batch.num_rows for batch in group)
                with (
                    self.folder.created(f"{PARTS}/{name}") as file,
                    pa.ipc.new_file(file, schema) as writer,
                ):
                    for batch in group:
                        writer.write_batch(batch)
                size = sum(batch.nbytes for batch in group)
                written.append(LogPart(name, rows, size))
        except BaseException:
            self.drop_parts(written)
            raise
        return written

    def read_part(self, name: str, skipped: int = 0) -> Iterator[pa.RecordBatch]:
        """The rows of a part after so many."""
        if "/" in name:
            raise StreamUnfit(
                f"{self.folder.shown()} names a part {name!r}, which is no file of it"
            )
        with self.folder.opened(f"{PARTS}/{name}") as file:
            try:
                reader = pa.ipc.open_file(file)
                for number in range(reader.num_record_batches):
                    batch, skipped = without_rows(reader.get_batch(number), skipped)
                    if batch.num_rows:
                        yield batch
            except pa.ArrowException as error:
                raise PathUnusable(
                    self.folder.shown(f"{PARTS}/{name}"), f"is damaged: {error}"
                ) from error

    def drop_parts(self, parts: Iterable[LogPart]) -> None:
        for part in parts:
            self.folder.remove(f"{PARTS}/{part.name}")

    # Entries.

    def append(self, entry: LogEntry) -> bool:
        """False: it was there already, or was there and has been read."""
        if self.has(entry):
            return False
        return self.folder.put(_entry_name(entry.origin, entry.number), msgspec.json.encode(entry))

    def has(self, entry: LogEntry) -> bool:
        """Whether one of this origin and number is there, or was."""
        name = _entry_name(entry.origin, entry.number)
        # In this order: what is removed was noted as removed before.
        return self.folder.has(name) or self.removed().covers(entry.origin, entry.number)

    def entries(self) -> dict[str, list[int]]:
        """The numbers of each origin's entries, in order."""
        found: dict[str, list[int]] = {}
        for name in sorted(self.folder.sizes(ENTRIES)):
            match = _ENTRY.fullmatch(name)
            if match is not None:
                found.setdefault(match[1], []).append(int(match[2]))
        return found

    def newest(self, origin: str) -> int:
        """The last number of this origin, also if it was removed; -1: there was none."""
        found = self.entries().get(origin, ())  # first: what is removed was noted as removed before
        return max(self.removed().numbers.get(origin, -1), *found, -1)

    def read_entry(self, origin: str, number: int) -> LogEntry | None:
        return self._read(_entry_name(origin, number), LogEntry)

    def removed(self) -> RemovedEntries:
        """What was read."""
        return self._read(TRIMMED, RemovedEntries) or RemovedEntries()

    def trim(self, read: Mapping[str, int]) -> None:
        """Remove what was read, up to these numbers; nobody will ask for it again."""
        removed = self.removed()
        due = {
            origin: number for origin, number in read.items() if not removed.covers(origin, number)
        }
        entries = [(origin, n) for origin, numbers in self.entries().items() for n in numbers]
        gone = {
            (origin, number): self.read_entry(origin, number)
            for origin, number in entries
            if number <= read.get(origin, -1) or removed.covers(origin, number)
        }
        left = [origin for origin, number in entries if (origin, number) not in gone]
        now = removed.merged(due, map(_committed, filter(None, gone.values())), left)
        if now != removed:
            self.folder.replace(TRIMMED, msgspec.json.encode(now))
        for (origin, number), entry in gone.items():
            self._remove_entry(origin, number, entry)

    def committed(self) -> Committed:
        """The newest checkpoint of an output whose rows are there, or were read."""
        entries = self.entries()
        last = self.removed().last
        writers = {origin: run for origin in entries if (run := run_of(origin)) is not None}
        for writer in sorted(writers, key=lambda name: writers[name], reverse=True):
            if writers[writer] < last.run:
                break
            found = map(self.read_entry, repeat(writer), reversed(entries[writer]))
            own = (_committed(entry) for entry in found if entry is not None and entry.checkpoint)
            last = max(last, next(own, last))
        return last

    def forget_empty(self, origin: str, number: int) -> None:
        """Remove an entry that has no parts and that its origin will not repeat."""
        self.folder.remove(_entry_name(origin, number))

    def _remove_entry(self, origin: str, number: int, entry: LogEntry | None) -> None:
        if entry is not None:
            self.drop_parts(entry.parts)
            for part in entry.parts:
                self.folder.remove(f"{READ}/{part.name}")
        self.folder.remove(_entry_name(origin, number))

    # What of an output a query has.

    def take(self, read: Mapping[str, int]) -> None:
        """A query reads up to these numbers now; they are removed when it is done with them."""
        self.folder.replace(TAKEN, msgspec.json.encode(dict(read)))

    def taken(self) -> dict[str, int]:
        """Up to which number of each origin a query has begun to read."""
        return self._read(TAKEN, dict[str, int]) or {}

    # What of an input was read.

    def mark_read(self, part: str) -> None:
        """Its rows are in the job; it may still be asked for, until a checkpoint covers it."""
        self.folder.put(f"{READ}/{part}", b"")

    def marked_read(self) -> set[str]:
        return set(self.folder.sizes(READ))

    def parts(self) -> dict[str, int]:
        """Files of rows with their lengths, also such that no entry names."""
        return self.folder.sizes(PARTS)

    def drop_dead_parts(self, run: Run) -> None:
        """Remove what writers of runs before this one, which has committed, have left unnamed."""
        parts = self.parts()
        named = {part_prefix(origin, n) for origin, found in self.entries().items() for n in found}
        for name in parts:
            writer = run_of(name.partition(".")[0])
            if writer is not None and writer < run and f"{part_batch(name)}." not in named:
                self.folder.remove(f"{PARTS}/{name}")

    def _read(self, name: str, kind: type[Read]) -> Read | None:
        data = self.folder.read(name)
        return None if data is None else self._decode(name, data, kind)

    def _decode(self, name: str, data: bytes, kind: type[Read]) -> Read:
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.MsgspecError as error:
            raise StreamUnfit(
                f"{self.folder.shown(name)} is damaged, or no file of Headgate's: {error}"
            ) from error


def part_prefix(origin: str, number: int) -> str:
    """What the names of an entry's parts begin with, which several tasks write before it."""
    return f"{origin}.{number:020}."


def part_batch(name: str) -> str:
    """The origin and number of such a part, as a text."""
    return name.rpartition(".")[0].rpartition(".")[0]


def new_info(
    kind: str,
    name: str,
    schema: pa.Schema,
    types: Sequence[str],
    most: tuple[int, int],
) -> StreamInfo:
    """The description of a new log; ``most``: bytes and batches."""
    return StreamInfo(
        secrets.token_hex(8),
        kind,
        name,
        schema.serialize().to_pybytes(),
        tuple(zip(schema.names, types, strict=True)),
        *most,
    )


def process_since(pid: int) -> str:
    """When a process was started: another one may have got its number since. Empty: not known."""
    with suppress(OSError, IndexError), open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[19]
    return ""


def this_host() -> str:
    """Where process ids are valid: this machine, and this container of it."""
    with suppress(OSError):
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    return socket.gethostname()


class _Version(msgspec.Struct):
    """The version of a log, whatever else its description says."""

    version: int


def _committed(entry: LogEntry) -> Committed:
    return Committed(run_of(entry.origin) or (0, 0), entry.checkpoint)


def _entry_name(origin: str, number: int) -> str:
    assert re.fullmatch(r"[A-Za-z0-9-]+", origin), origin
    return f"{ENTRIES}/{origin}.{number:020}.json"


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Batches of one part after the other."""
    group: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            group.append(batch)
            size += batch.nbytes
        if size >= PART_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
