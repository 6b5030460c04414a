"""Writes the part files of a task: the first phase of a file sink.

A part is written under a hidden name and closed when its rolling policy or a checkpoint says so; it
gets its final name when the checkpoint completes (see ``part_commits``), or at the end of the input
if there are no checkpoints. Law: a part that a checkpoint names was flushed to disk before, and
stays until it is committed, whether it was open, ended or prepared when the task failed; nothing
else remains.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias

from headgate.base.elements import ByteLike, Record
from headgate.connectors.files.layout import PartPlan
from headgate.connectors.files.part_commits import PartCommit
from headgate.connectors.files.part_folder import PartFile, PartFolder, open_folder, writing
from headgate.connectors.files.part_names import (
    PartNames,
    marker_text,
    naming,
    part_owner,
    remove_leftovers,
)
from headgate.functions.context import ConnectorContext, SnapshotMoment
from headgate.functions.sink import CommittingSinkWriter

MOST_OPEN: Final = 128
"""Parts of a task that are open at once; one more ends the least recently written."""


Malformed: TypeAlias = Callable[[object, Exception], None]
"""Takes a record that has no form in a file, and raises or leaves it out."""


class PartEncoder(Protocol):
    """Turns records into the bytes of one part."""

    def write(self, records: list[Record]) -> None: ...

    def end(self) -> None:
        """No more records: the last bytes. The file stays open."""

    def close(self) -> None:
        """Give back everything, also without ``end``; idempotent."""


class PartFormat(Protocol):
    """Makes the encoder of each part."""

    grows: bool
    """A part is complete after each write, so that it can go on over a checkpoint."""

    def begin(self, file: PartFile) -> PartEncoder: ...


class Lines:
    """A format of lines: ``encode`` makes bytes of records, ``head`` stands first in each part."""

    grows = True

    def __init__(
        self,
        encode: Callable[[list[Record]], ByteLike],
        malformed: Malformed,
        head: bytes = b"",
    ) -> None:
        """``malformed``: see ``ConnectorContext``."""
        self._encode = encode
        self._head = head
        self._malformed = malformed

    def begin(self, file: PartFile) -> "LineEncoder":
        file.write(self._head)
        return LineEncoder(file, self._encode, self._malformed)


class LineEncoder:
    """Writes what the format makes of records; ``malformed`` takes those that have no form."""

    def __init__(
        self, file: PartFile, encode: Callable[[list[Record]], ByteLike], malformed: Malformed
    ) -> None:
        self._file = file
        self._encode = encode
        self._malformed = malformed

    def write(self, records: list[Record]) -> None:
        try:
            data = self._encode(records)
        except Exception:  # each alone, to learn which one it is
            data = b"".join(map(self._encoded, records))
        self._file.write(data)

    def _encoded(self, record: Record) -> ByteLike:
        try:
            return self._encode([record])
        except Exception as error:
            self._malformed(record, error)
            return b""

    def end(self) -> None:
        """Lines end by themselves."""

    def close(self) -> None:
        """It has nothing of its own."""


@dataclass(slots=True, eq=False)
class _Part:
    commit: PartCommit
    file: PartFile
    encoder: PartEncoder
    opened_ms: int
    written_ms: int
    settled: bool = False
    """Nothing was written since a checkpoint has named it."""
    named: bool = False
    """A checkpoint names it, also after it was ended: a restore may need what it had then."""


class PartsWriter(CommittingSinkWriter):
    """Writes the parts of one task. A file is made with its first record."""

    def __init__(
        self, names: PartNames, form: PartFormat, plan: PartPlan, context: ConnectorContext
    ) -> None:
        self._form = form
        self._rolling = plan.rolling
        self._buckets = plan.buckets
        self._now_ms = context.now_ms
        self._rolls = context.checkpoints
        self._folder: PartFolder = open_folder(names.folder)
        self._open: dict[str, _Part] = {}  # by bucket; the one written last stands last
        self._ended: list[_Part] = []  # since the last checkpoint, which may name them all the same
        self._waiting: list[PartCommit] = []  # in a checkpoint, and perhaps not yet committed
        self._deep = plan.buckets is not None
        self._own = part_owner(context, f"{names.prefix}\0{names.suffix}")
        self._cleans = bool(context.task.job_id or context.task.attempt)
        with writing(self._folder.shown("")):
            self._folder.make()
            self._naming = naming(names, self._folder, context, self._own, self._deep)
        self._remove_leftovers()

    def write(self, records: list[Record]) -> None:
        now_ms = self._now_ms()
        if self._buckets is None:
            self._append("", records, now_ms)
            return
        for bucket, some in self._buckets.split(records, now_ms):
            self._append(bucket, some, now_ms)

    def prepare_commit(self, moment: SnapshotMoment | None) -> Sequence[PartCommit]:
        for bucket, part in list(self._open.items()):
            if moment is None or self._is_over(part, moment):
                self._end(bucket)
            elif not part.settled:
                with writing(self._folder.shown(part.commit.hidden)):
                    self._folder.settle(part.file)
                part.settled = True
        ended = [part.commit for part in self._ended]
        with writing(self._folder.shown("")):
            self._keep(ended, moment)
        unnamed = [part.commit for part in self._open.values() if not part.named]
        # Of those that wait: the markers of a savepoint are new in their folders.
        named = (*ended, *unnamed, *(self._waiting if moment and moment.is_savepoint else ()))
        for subfolder in {commit.hidden.rpartition("/")[0]: None for commit in named}:
            with writing(self._folder.shown(subfolder)):
                self._folder.settle_names(subfolder)
        self._ended = []
        if moment is None or moment.stop.ends:
            self._remove_leftovers()  # of those who were thought to be dead when this one began
        return ended

    def unfinished(self) -> Sequence[PartCommit]:
        found = []
        for part in self._open.values():
            part.named = True
            found.append(replace(part.commit, length=part.file.tell(), is_open=True))
        return found

    def close(self) -> None:
        folder = self._folder
        for part in self._open.values():
            with contextlib.suppress(Exception):  # a full disk says so again
                part.encoder.close()
            with contextlib.suppress(OSError):
                part.file.close()
        for part in (*self._open.values(), *self._ended):
            if not part.named:
                with contextlib.suppress(OSError):
                    folder.remove(part.commit.hidden)
        self._open, self._ended = {}, []

    def _append(self, bucket: str, records: list[Record], now_ms: int) -> None:
        part = self._open.pop(bucket, None)
        if part is None:
            part = self._begin(bucket, now_ms)
        self._open[bucket] = part
        with writing(self._folder.shown(part.commit.hidden)):
            part.encoder.write(records)
            part.written_ms, part.settled = now_ms, False
            if self._rolls and part.file.tell() >= self._rolling.part_size:
                self._end(bucket)

    def _begin(self, bucket: str, now_ms: int) -> _Part:
        if len(self._open) >= MOST_OPEN:
            self._end(next(iter(self._open)))
        commit = self._naming.next(bucket)
        with writing(self._folder.shown(commit.hidden)):
            file = self._folder.create(commit.hidden)
            try:
                return _Part(commit, file, self._form.begin(file), now_ms, now_ms)
            except BaseException:
                with contextlib.suppress(OSError):  # a full disk says so again
                    file.close()
                with contextlib.suppress(OSError):
                    self._folder.remove(commit.hidden)
                raise

    def _end(self, bucket: str) -> None:
        """Close a part; until that is done it stays among the open ones."""
        part = self._open[bucket]
        with writing(self._folder.shown(part.commit.final)):
            part.encoder.end()
            self._folder.settle(part.file)
            length = part.file.tell()
            part.file.close()
        del self._open[bucket]
        part.commit = replace(part.commit, length=length)
        self._ended.append(part)

    def _is_over(self, part: _Part, moment: SnapshotMoment) -> bool:
        # A savepoint holds closed parts only: the job may write on, and is not to change them.
        if moment.is_savepoint or not (self._form.grows and self._folder.grows):
            return True
        return self._rolling.is_over(part.opened_ms, part.written_ms, self._now_ms())

    def _keep(self, ended: list[PartCommit], moment: SnapshotMoment | None) -> None:
        """A savepoint outlives the run: no other run may take its parts for leftovers."""
        folder = self._folder
        self._waiting = [commit for commit in self._waiting if folder.has(commit.hidden)] + ended
        if moment is None:
            self._naming.ended({commit.final for commit in self._waiting})
        elif moment.is_savepoint:
            text = marker_text(moment.directory)
            for commit in self._waiting:
                with folder.create(commit.kept, replace=True) as file:
                    file.write(text)
                    folder.settle(file)

    def _remove_leftovers(self) -> None:
        if self._cleans:
            remove_leftovers(self._folder, self._own, self._deep)
