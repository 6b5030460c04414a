"""What part files are called, hidden and in the end, and which of them are leftovers.

With checkpoints: ``prefix-subtask-token-counter.suffix``, where the token is the writer's own, so
that no name comes twice. Without: ``prefix-subtask.suffix``, the same in each attempt, so that an
attempt replaces what the one before has written. Law: a task removes only hidden files of its own
job and sink, those of the subtasks whose state it has got, and none that a savepoint needs.
"""

import hashlib
import os
import posixpath
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from headgate.base.errors import PathUnusable, PlanInvalid
from headgate.connectors.files import AnyPath
from headgate.connectors.part_commits import PartCommit
from headgate.connectors.part_place import Place, place_uri, writing
from headgate.core.chain.context import OperatorContext


@dataclass(frozen=True)
class PartNames:
    """Where the parts of a sink stand, and what their names begin and end with."""

    folder: str
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
    return PartNames(place_uri(folder), prefix, suffix, overwrite)


def naming(
    names: PartNames, place: Place, context: OperatorContext, deep: bool
) -> "UniqueNames | PlainNames":
    """For the parts of one task; what dead attempts have left is removed.

    ``deep``: parts may stand in folders below that of the sink.
    """
    return (UniqueNames if context.checkpoints else PlainNames)(names, place, context, deep)


class UniqueNames:
    """With checkpoints: every name is new."""

    def __init__(
        self, names: PartNames, place: Place, context: OperatorContext, deep: bool
    ) -> None:
        task = context.task
        self._names = names
        self._stem = f"{names.prefix}-{task.subtask}-{secrets.token_hex(4)}"
        self._owner = secrets.token_hex(4)  # without the job's id nobody could know its leftovers
        self._count = 0
        if task.job_id:
            whose = f"{task.job_id}\0{context.uid or context.operator}"
            self._owner = hashlib.sha256(whose.encode()).hexdigest()[:8]
            if task.attempt or context.restored is not None:
                self._clean(place, task.subtask, task.parallelism, deep)

    def next(self, bucket: str) -> PartCommit:
        """Names for one more part."""
        names = self._names
        name = f"{self._stem}-{self._count}{names.suffix}"
        self._count += 1
        return _part(names.folder, bucket, name, self._owner)

    def ended(self, committed: set[str]) -> None:
        """Nothing is left under other names."""

    def _clean(self, place: Place, subtask: int, parallelism: int, deep: bool) -> None:
        # The owner alone counts: a program that was changed may call its parts otherwise now.
        form = re.compile(rf"\..+-(\d+)-[0-9a-f]{{8}}-\d+.*\.inprogress-{self._owner}(?:\.copy)?")
        _remove_hidden(place, deep, form, lambda found: int(found[1]) % parallelism == subtask)


class PlainNames:
    """Without checkpoints: all parts appear when the task has read its whole input."""

    def __init__(
        self, names: PartNames, place: Place, context: OperatorContext, deep: bool
    ) -> None:
        task, restored = context.task, context.restored
        self._names = names
        self._place = place
        self._deep = deep
        self._attempt = task.attempt
        self._stem = f"{names.prefix}-{task.subtask}"
        if restored is not None:  # what was written before it must stay
            self._stem += f"-from-{restored.checkpoint}"
        self._counts: dict[str, int] = {}
        self._replaces = names.overwrite or task.attempt > 0
        suffix = re.escape(names.suffix)
        self._own = re.compile(rf"{re.escape(self._stem)}(?:-\d+)?{suffix}")
        if task.attempt:
            form = re.compile(rf"\.{self._own.pattern}\.inprogress-(\d+)")
            _remove_hidden(place, deep, form, lambda found: int(found[1]) < task.attempt)
        if not self._replaces:
            for name in self._there():
                raise PathUnusable(
                    place.shown(name),
                    "exists already; give the sink another folder or prefix, or overwrite=True",
                )

    def next(self, bucket: str) -> PartCommit:
        """Names for one more part; an earlier attempt has used the same final one."""
        names = self._names
        count = self._counts.get(bucket, 0)
        self._counts[bucket] = count + 1
        name = f"{self._stem}{f'-{count}' if count else ''}{names.suffix}"
        return _part(names.folder, bucket, name, str(self._attempt), replaces=True)

    def ended(self, committed: set[str]) -> None:
        """Remove what an attempt or job before has written under names that are not used again."""
        if self._replaces:
            for name in self._there():
                if name not in committed:
                    self._place.remove(name)

    def _there(self) -> list[str]:
        names = self._place.names(self._deep)
        return [name for name in names if self._own.fullmatch(posixpath.basename(name))]


def _part(folder: str, bucket: str, name: str, owner: str, *, replaces: bool = False) -> PartCommit:
    return PartCommit(
        folder,
        posixpath.join(bucket, f".{name}.inprogress-{owner}"),
        posixpath.join(bucket, name),
        posixpath.join(bucket, f".{name}.kept-{owner}"),
        replaces,
    )


def _remove_hidden(
    place: Place, deep: bool, form: re.Pattern[str], is_own: Callable[[re.Match[str]], bool]
) -> None:
    with writing(place.shown("")):
        there = set(place.names(deep))
        for name in sorted(there):
            found = form.fullmatch(posixpath.basename(name))
            kept = re.sub(r"\.inprogress-(\w+)(\.copy)?$", r".kept-\1", name)
            if found is not None and is_own(found) and kept not in there:
                place.remove(name)
