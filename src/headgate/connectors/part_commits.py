"""Part files get their names: the second phase of a file sink.

Law: a part that is there under its name is whole, and was in a complete checkpoint or is of a task
that has read its whole input. Committing again changes nothing: who finds the name and not the
hidden file leaves it so. No file of anybody else is replaced.
"""

import logging
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from headgate.api.source import Committer
from headgate.base.elements import Record
from headgate.base.errors import PathUnusable
from headgate.connectors.part_place import Place, open_place, writing

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PartCommit:
    """A part that waits for its name; what a file sink keeps in checkpoints."""

    folder: str
    """Of the sink, as ``place_uri`` names it; the names are below it."""
    hidden: str
    final: str
    kept: str = ""
    """A file of this name says that a savepoint needs the hidden one."""
    replaces: bool = False
    """What stands under the name is an earlier attempt's, or may be overwritten."""
    length: int = -1
    """So many bytes of it count; -1: all, the file is closed."""


class PartCommitter(Committer):
    """Renames parts, wherever they are."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}

    def commit(self, committables: Sequence[Record]) -> None:
        self._commit_all(committables, again=False)

    def commit_again(self, committables: Sequence[Record]) -> None:
        self._commit_all(committables, again=True)

    def _commit_all(self, parts: Sequence[PartCommit], again: bool) -> None:
        touched: dict[tuple[str, str], None] = {}
        for part in parts:
            place = self._place(part.folder)
            with writing(place.shown(part.final)):
                if self._commit(place, part, again):
                    touched[part.folder, posixpath.dirname(part.final)] = None
                if part.kept:
                    place.remove(part.kept)
        for folder, below in touched:
            place = self._place(folder)
            with writing(place.shown(below)):
                place.settle_names(below)

    def _commit(self, place: Place, part: PartCommit, again: bool) -> bool:
        """Says whether there was anything to do."""
        if not part.replaces and place.has(part.final):
            is_whole = part.length < 0
            if is_whole and not place.grows:
                place.remove(part.hidden)  # copied, and then the process has died
            elif not again or (is_whole and place.has(part.hidden)):
                raise PathUnusable(
                    place.shown(part.final),
                    "exists already and is of somebody else; move it away and start the job again",
                )
            return False
        try:
            if part.length >= 0:
                place.copy(part.hidden, part.final, part.length)
            else:
                place.rename(part.hidden, part.final)
        except FileNotFoundError:
            if not again:
                raise
            if not place.has(part.final):
                log.warning(
                    "%s is not there, and neither is %s: a checkpoint names it, so it was "
                    "committed and then taken away, or it is lost",
                    place.shown(part.final),
                    place.shown(part.hidden),
                )
            return False
        return True

    def _place(self, folder: str) -> Place:
        if folder not in self._places:
            self._places[folder] = open_place(folder)
        return self._places[folder]
