"""Commits part files by giving them their final names: the second phase of a file sink.

Law: a part with its final name is whole, and was in a complete checkpoint or belongs to a task that
has read its whole input. Committing is idempotent: a part whose final name exists and whose hidden
file does not is left as it is. If both are missing, or bytes are, the commit fails: nothing is lost
silently. No file of anybody else is replaced.
"""

import logging
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from headgate.base.elements import Record
from headgate.base.errors import PartLost, PathUnusable
from headgate.connectors.files.part_folder import PartFolder, open_folder, too_short, writing
from headgate.functions.sink import Committer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PartCommit:
    """A part that waits for its final name; what a file sink stores in checkpoints."""

    folder: str
    """The sink's folder, as ``folder_uri`` names it; the names are below it."""
    hidden: str
    final: str
    kept: str = ""
    """A file of this name says that a savepoint needs the hidden one."""
    replaces: bool = False
    """A file of this name is of an earlier attempt, or may be overwritten."""
    length: int = -1
    """How many of its bytes count; -1: all."""
    is_open: bool = False
    """Its writer may have appended more."""

    def __getstate__(self) -> list[Any]:
        return [getattr(self, field.name) for field in fields(self)]

    def __setstate__(self, state: list[Any]) -> None:
        # The first ones had no ``is_open``, and a length only then.
        for field, value in zip(fields(self), [*state, state[5] >= 0], strict=False):
            object.__setattr__(self, field.name, value)


class PartCommitter(Committer):
    """Renames parts, wherever they are."""

    def __init__(self, readers_take_parts: bool = False) -> None:
        """``readers_take_parts``: a missing part was taken by a reader."""
        self._readers_take_parts = readers_take_parts
        self._folders: dict[str, PartFolder] = {}

    def commit(self, committables: Sequence[Record]) -> None:
        self._commit_all(committables, again=False)

    def commit_again(self, committables: Sequence[Record]) -> None:
        self._commit_all(committables, again=True)

    def _commit_all(self, parts: Sequence[PartCommit], again: bool) -> None:
        touched: dict[tuple[str, str], None] = {}
        for part in parts:
            folder = self._open(part.folder)
            with writing(folder.shown(part.final)):
                is_there = self._commit(folder, part, again)
            if is_there:  # whoever has renamed it may have died before it was settled
                touched[part.folder, posixpath.dirname(part.final)] = None
        for uri, below in touched:
            folder = self._open(uri)
            with writing(folder.shown(below)):
                folder.settle_names(below)
        for part in parts:  # not before: the part could be without both names after a crash
            folder = self._open(part.folder)
            with writing(folder.shown(part.hidden)):
                if part.is_open:
                    folder.remove(part.hidden)
                if part.kept:
                    folder.remove(part.kept)

    def _commit(self, folder: PartFolder, part: PartCommit, again: bool) -> bool:
        """Whether the part now has its final name."""
        if not part.replaces and folder.has(part.final):
            if not part.is_open and not folder.grows and _is_whole(folder, part):
                folder.remove(part.hidden)  # copied, and then the process has died
            elif not again or (not part.is_open and folder.has(part.hidden)):
                raise PathUnusable(
                    folder.shown(part.final),
                    "exists already and is of somebody else; move it away and start the job again",
                )
            return True
        try:
            _show(folder, part, again)
        except FileNotFoundError as error:
            if folder.is_removed():
                raise PartLost(folder.shown(part.final), _removed(folder, part)) from error
            # A folder that other hosts write to may be cached here as it was some seconds ago.
            there = set(folder.names("/" in part.final))
            if again and part.hidden in there:
                _show(folder, part, again)
            elif again and part.final in there and _is_same(folder, part):
                return True
            elif again and self._readers_take_parts:
                log.warning("%s is not there any more: a reader took it", folder.shown(part.final))
                return False
            else:
                raise PartLost(folder.shown(part.final), _lost(folder, part, again)) from error
        return True

    def _open(self, uri: str) -> PartFolder:
        if uri not in self._folders:
            self._folders[uri] = open_folder(uri)
        return self._folders[uri]


def _show(folder: PartFolder, part: PartCommit, again: bool) -> None:
    if part.is_open:
        folder.copy(part.hidden, part.final, part.length)
        return
    if again and part.length >= 0 and (found := folder.size(part.hidden)) != part.length:
        raise PartLost(folder.shown(part.hidden), too_short(found, part.length))
    folder.rename(part.hidden, part.final)


def _is_whole(folder: PartFolder, part: PartCommit) -> bool:
    """Whether the file under the final name can be a copy of the part."""
    return part.length < 0 or folder.size(part.final) == part.length


def _is_same(folder: PartFolder, part: PartCommit) -> bool:
    """Whether what stands under the name is this part; only names that come again leave doubt."""
    return not part.replaces or _is_whole(folder, part)


def _removed(folder: PartFolder, part: PartCommit) -> str:
    return (
        f"cannot be committed: somebody has removed the folder {folder.shown('')}, and with it "
        f"{folder.shown(part.hidden)}, whose records a checkpoint holds as written; bring it back, "
        f"or go on from an older checkpoint"
    )


def _lost(folder: PartFolder, part: PartCommit, again: bool) -> str:
    hidden = folder.shown(part.hidden)
    if not again:
        return (
            f"cannot be committed: {hidden} is gone; somebody has removed it, and its records with "
            f"it, or a later attempt of the job has begun"
        )
    return (
        f"is not there, and neither is {hidden}: a checkpoint names it, so its records are lost or "
        f"were taken away; if a reader has taken it, make an empty file of that name and start the "
        f"job again (the sink's readers_take_parts=True lets readers do so), else go on from an "
        f"older checkpoint"
    )
