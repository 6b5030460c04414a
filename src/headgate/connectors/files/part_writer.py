"""Writes the part files of a task: the first phase of a file sink.

A part is written under a hidden name and closed when its rolling policy or a checkpoint says so; it
gets its final name when the checkpoint completes (see ``part_commits``), or at the end of the input
if there are no checkpoints. Law: a part that a checkpoint names was flushed to disk before, and
stays until it is committed, whether it was open, ended or prepared when the task failed; nothing
else remains. Hidden names never recur in any attempt of any job and tell their owner; a writer
removes only files of its own job and sink, of subtasks whose state it has received, of writers that
began before it, and none that a complete savepoint needs.
"""

import contextlib
import logging
import os
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeAlias

from headgate.base.elements import ByteLike, Record
from headgate.base.errors import ConnectorError, PathUnusable, PlanInvalid
from headgate.connectors.files.layout import PartPlan
from headgate.connectors.files.part_commits import PartCommit
from headgate.connectors.files.part_folder import (
    PartFile,
    PartFolder,
    open_folder,
    writing,
)
from headgate.connectors.paths import AnyPath, folder_uri
from headgate.connectors.staged import WriterId
from headgate.functions.context import ConnectorContext, SnapshotMoment
from headgate.functions.sink import CommittingSinkWriter

log = logging.getLogger(__name__)

SAVEPOINT_METADATA: Final = "_metadata"
"""The file of a savepoint that is written last."""

_HIDDEN: Final = re.compile(
    r"(?P<part>\..+)\.(?P<kind>inprogress|kept)-"
    r"(?P<whose>(?P<owner>[0-9a-f]{8})-(?P<subtask>\d+)-(?P<began>[0-9a-f]+)-(?P<token>[0-9a-f]{8}))"
    r"(?:\.copy-[0-9a-f]+)?"
)
_PASSWORD: Final = re.compile(r"(?<=//)[^/@]*@")


def part_owner(context: ConnectorContext, prefix: str) -> WriterId:
    """The writer of one task; a job without an id is known by its name and its parts' names."""
    task = context.task
    # With an id, a program that was changed may call its parts otherwise now. Who begins with
    # another folder of checkpoints knows nothing of what those in the first one need.
    by_id = f"id\0{task.job_id}\0{task.checkpoint_folder}"
    job = by_id if task.job_id else f"name\0{task.job}\0{prefix}"
    whose = f"{job}\0{context.uid or context.operator}"
    return WriterId.new(context, whose, max(0, context.now_ms()), 8)


def kept_marker(hidden: str) -> str:
    """The file that says that a savepoint needs a hidden one; empty if there cannot be one."""
    folder, name = posixpath.split(hidden)
    found = _HIDDEN.fullmatch(name)
    return posixpath.join(folder, f"{found['part']}.kept-{found['whose']}") if found else ""


def marker_text(directory: str) -> bytes:
    """The contents of a marker: where the savepoint is written, without a password."""
    return _PASSWORD.sub("", directory).encode()


def remove_leftovers(folder: PartFolder, own: WriterId, deep: bool) -> None:
    """Remove hidden files of earlier writers that no checkpoint or savepoint needs.

    ``deep``: look in subfolders, too. What cannot be removed stays, with a warning: it is hidden,
    and the next run tries again.
    """
    problem: Exception | None = None
    try:
        there = set(folder.names(deep))
        for name in sorted(_unneeded(folder, own, there)):
            try:
                folder.remove(name)
            except OSError as error:
                problem = error
    except (OSError, ConnectorError) as error:
        problem = error
    if problem is not None:
        log.warning(
            "%s: what dead attempts have left stays for now: %s",
            folder.shown(""),
            str(problem).partition("\n")[0],
        )


def _unneeded(folder: PartFolder, own: WriterId, there: set[str]) -> Iterator[str]:
    for name in there:
        found = _HIDDEN.fullmatch(posixpath.basename(name))
        if found is None or not own.succeeds(found):
            continue
        if found["kind"] == "kept":
            hidden = f"{found['part']}.inprogress-{found['whose']}"
            if posixpath.join(posixpath.dirname(name), hidden) not in there:
                yield name
            continue
        marker = kept_marker(name)
        if marker not in there:
            yield name
        elif not _is_needed(folder, marker):
            yield marker
            yield name


def _is_needed(folder: PartFolder, marker: str) -> bool:
    """Whether the savepoint of a marker is complete, or may be.

    It may be moved later on, so that once it was seen the marker names no place any more.
    """
    directory = folder.read(marker).decode(errors="replace")
    if not directory:
        return True
    try:
        is_complete = open_folder(folder_uri(directory)).has(SAVEPOINT_METADATA)
    except (OSError, ConnectorError) as error:
        log.warning(
            "%s: parts of savepoint %s stay: it cannot be read (%s)",
            folder.shown(marker),
            directory,
            str(error).partition("\n")[0],
        )
        return True
    if is_complete:
        folder.create(marker, replace=True).close()
    return is_complete


@dataclass(frozen=True)
class PartNames:
    """Where the parts of a sink stand, and what their names begin and end with."""

    folder: str = field(repr=False)  # may have a login
    prefix: str
    suffix: str
    overwrite: bool = False
    """Replace what an earlier job has left under the same names; without checkpoints only."""


def part_names(folder: AnyPath, prefix: str, suffix: str, overwrite: bool) -> PartNames:
    """Checked in the driver, before anything runs."""
    if os.sep in prefix + suffix or prefix.startswith((".", "_")):
        raise PlanInvalid(
            f"part files cannot be called {prefix}-0{suffix}: give a prefix and suffix without "
            f"{os.sep}, and without . or _ in front, which would hide them"
        )
    return PartNames(folder_uri(folder), prefix, suffix, overwrite)


def naming(
    names: PartNames, folder: PartFolder, context: ConnectorContext, own: WriterId, deep: bool
) -> "UniqueNames | PlainNames":
    """For the parts of one task; ``deep``: they may stand in folders below that of the sink."""
    if context.checkpoints:
        return UniqueNames(names, own)
    return PlainNames(names, folder, context, own, deep)


class UniqueNames:
    """With checkpoints: every name is new."""

    def __init__(self, names: PartNames, own: WriterId) -> None:
        self._names = names
        self._own = own
        self._stem = f"{names.prefix}-{own.subtask}-{own.token}"
        self._count = 0

    def next(self, bucket: str) -> PartCommit:
        """Names for one more part."""
        names = self._names
        name = f"{self._stem}-{self._count}{names.suffix}"
        self._count += 1
        return _part(names.folder, bucket, name, self._own)

    def ended(self, committed: set[str]) -> None:
        """Nothing is left under other names."""


class PlainNames:
    """Without checkpoints: all parts appear when the task has read its whole input."""

    def __init__(
        self,
        names: PartNames,
        folder: PartFolder,
        context: ConnectorContext,
        own: WriterId,
        deep: bool,
    ) -> None:
        task, restored = context.task, context.restored
        self._names = names
        self._folder = folder
        self._deep = deep
        self._owner = own
        self._stem = f"{names.prefix}-{task.subtask}"
        if restored is not None:  # what was written before it must stay
            self._stem += f"-from-{restored.checkpoint}"
        self._counts: dict[str, int] = {}
        self._replaces = names.overwrite or task.attempt > 0
        suffix = re.escape(names.suffix)
        self._own = re.compile(rf"{re.escape(self._stem)}(?:-\d+)?{suffix}")
        if not self._replaces:
            for name in self._there():
                raise PathUnusable(
                    folder.shown(name),
                    "exists already; give the sink another folder or prefix, or overwrite=True",
                )

    def next(self, bucket: str) -> PartCommit:
        """Names for one more part; an earlier attempt has used the same final one."""
        names = self._names
        count = self._counts.get(bucket, 0)
        self._counts[bucket] = count + 1
        name = f"{self._stem}{f'-{count}' if count else ''}{names.suffix}"
        return _part(names.folder, bucket, name, self._owner, replaces=True)

    def ended(self, committed: set[str]) -> None:
        """Remove what an attempt or job before has written under names that are not used again."""
        if self._replaces:
            for name in self._there():
                if name not in committed:
                    self._folder.remove(name)

    def _there(self) -> list[str]:
        names = self._folder.names(self._deep)
        return [name for name in names if self._own.fullmatch(posixpath.basename(name))]


def _part(
    folder: str, bucket: str, name: str, own: WriterId, *, replaces: bool = False
) -> PartCommit:
    hidden = posixpath.join(
        bucket, f".{name}.inprogress-{own.owner}-{own.subtask}-{own.began_ms:x}-{own.token}"
    )
    return PartCommit(
        folder, hidden, posixpath.join(bucket, name), kept_marker(hidden), replaces=replaces
    )


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
            self._keep_waiting(ended, moment)
        unnamed = [part.commit for part in self._open.values() if not part.named]
        # Parts that wait are named, too: markers of a savepoint are new in their folders.
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

    def _keep_waiting(self, ended: list[PartCommit], moment: SnapshotMoment | None) -> None:
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
