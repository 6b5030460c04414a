"""Names of part files, hidden and final, and who removes hidden files that nobody will commit.

Final names with checkpoints: ``prefix-subtask-token-counter.suffix``, with the writer's own token,
so no name recurs; without: ``prefix-subtask.suffix``, the same in each attempt, so an attempt
replaces what the previous one wrote. A hidden name tells its owner: job and sink, subtask, when the
writer began, and the writer's token. Law: hidden names never recur in any attempt of any job; a
writer removes only files of its own job and sink, of subtasks whose state it has received, of
writers that began before it, and none that a complete savepoint needs.
"""

import hashlib
import logging
import os
import posixpath
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from headgate.base.errors import ConnectorError, PathUnusable, PlanInvalid
from headgate.connectors.files.part_commits import PartCommit
from headgate.connectors.files.part_folder import PartFolder, folder_uri, open_folder
from headgate.connectors.paths import AnyPath
from headgate.functions.context import ConnectorContext

log = logging.getLogger(__name__)

SAVEPOINT_METADATA: Final = "_metadata"
"""The file of a savepoint that is written last."""

_HIDDEN: Final = re.compile(
    r"(?P<part>\..+)\.(?P<kind>inprogress|kept)-"
    r"(?P<whose>(?P<owner>[0-9a-f]{8})-(?P<subtask>\d+)-(?P<began>[0-9a-f]+)-(?P<token>[0-9a-f]{8}))"
    r"(?:\.copy-[0-9a-f]+)?"
)
_PASSWORD: Final = re.compile(r"(?<=//)[^/@]*@")


@dataclass(frozen=True, slots=True)
class PartOwner:
    """One writer, as the names of its hidden files tell it."""

    owner: str
    """Of the job and the sink: the same over all runs of the job."""
    subtask: int
    parallelism: int
    began_ms: int
    token: str

    @property
    def suffix(self) -> str:
        return f"{self.owner}-{self.subtask}-{self.began_ms:x}-{self.token}"

    def succeeds(self, hidden: re.Match[str]) -> bool:
        """Whether this writer replaces the writer of a hidden file."""
        return (
            hidden["owner"] == self.owner
            and int(hidden["subtask"]) % self.parallelism == self.subtask
            # A writer that was suspended and resumes must not touch its successors' files.
            and int(hidden["began"], 16) <= self.began_ms
            and hidden["token"] != self.token
        )


def part_owner(context: ConnectorContext, prefix: str) -> PartOwner:
    """Of the writer of one task; a job without an id is known by its name and its parts' names."""
    task = context.task
    # With an id, a program that was changed may call its parts otherwise now. Who begins with
    # another folder of checkpoints knows nothing of what those in the first one need.
    by_id = f"id\0{task.job_id}\0{task.checkpoint_folder}"
    job = by_id if task.job_id else f"name\0{task.job}\0{prefix}"
    whose = f"{job}\0{context.uid or context.operator}"
    return PartOwner(
        hashlib.sha256(whose.encode()).hexdigest()[:8],
        task.subtask,
        task.parallelism,
        max(0, context.now_ms()),
        secrets.token_hex(4),
    )


def kept_marker(hidden: str) -> str:
    """The file that says that a savepoint needs a hidden one; empty if there cannot be one."""
    folder, name = posixpath.split(hidden)
    found = _HIDDEN.fullmatch(name)
    return posixpath.join(folder, f"{found['part']}.kept-{found['whose']}") if found else ""


def marker_text(directory: str) -> bytes:
    """The contents of a marker: where the savepoint is written, without a password."""
    return _PASSWORD.sub("", directory).encode()


def remove_leftovers(folder: PartFolder, own: PartOwner, deep: bool) -> None:
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


def _unneeded(folder: PartFolder, own: PartOwner, there: set[str]) -> Iterator[str]:
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
    names: PartNames, folder: PartFolder, context: ConnectorContext, own: PartOwner, deep: bool
) -> "UniqueNames | PlainNames":
    """For the parts of one task; ``deep``: they may stand in folders below that of the sink."""
    if context.checkpoints:
        return UniqueNames(names, own)
    return PlainNames(names, folder, context, own, deep)


class UniqueNames:
    """With checkpoints: every name is new."""

    def __init__(self, names: PartNames, own: PartOwner) -> None:
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
        own: PartOwner,
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
    folder: str, bucket: str, name: str, own: PartOwner, *, replaces: bool = False
) -> PartCommit:
    hidden = posixpath.join(bucket, f".{name}.inprogress-{own.suffix}")
    return PartCommit(
        folder, hidden, posixpath.join(bucket, name), kept_marker(hidden), replaces=replaces
    )
