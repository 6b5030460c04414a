"""What part files are called, hidden and in the end.

With checkpoints: ``prefix-subtask-token-counter.suffix``, where the token is the writer's own, so
that no name comes twice. Without: ``prefix-subtask.suffix``, the same in each attempt, so that an
attempt replaces what the one before has written. Law: hidden names are never used again, in no
attempt of no job (see ``part_leftovers`` for what they tell).
"""

import os
import posixpath
import re
from dataclasses import dataclass

from headgate.base.errors import PathUnusable, PlanInvalid
from headgate.connectors.files.part_commits import PartCommit
from headgate.connectors.files.part_folder import PartFolder, place_uri
from headgate.connectors.files.part_leftovers import PartOwner, kept_marker
from headgate.connectors.paths import AnyPath
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
    names: PartNames, place: PartFolder, context: OperatorContext, own: PartOwner, deep: bool
) -> "UniqueNames | PlainNames":
    """For the parts of one task; ``deep``: they may stand in folders below that of the sink."""
    if context.checkpoints:
        return UniqueNames(names, own)
    return PlainNames(names, place, context, own, deep)


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
        place: PartFolder,
        context: OperatorContext,
        own: PartOwner,
        deep: bool,
    ) -> None:
        task, restored = context.task, context.restored
        self._names = names
        self._place = place
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
                    place.shown(name),
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
                    self._place.remove(name)

    def _there(self) -> list[str]:
        names = self._place.names(self._deep)
        return [name for name in names if self._own.fullmatch(posixpath.basename(name))]


def _part(
    folder: str, bucket: str, name: str, own: PartOwner, *, replaces: bool = False
) -> PartCommit:
    hidden = posixpath.join(bucket, f".{name}.inprogress-{own.suffix}")
    return PartCommit(
        folder, hidden, posixpath.join(bucket, name), kept_marker(hidden), replaces=replaces
    )
