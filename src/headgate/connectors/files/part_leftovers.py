"""Hidden files of a file sink that nobody will ever commit, and who removes them.

The name of a hidden file tells whose it is: the job and sink, the subtask, when its writer began,
and a token of the writer. Law: a writer removes only files of its own job and sink, of subtasks
whose state it has got, of writers that began before it, and none that a complete savepoint needs.
"""

import hashlib
import logging
import posixpath
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from headgate.base.errors import ConnectorError
from headgate.connectors.files.part_folder import PartFolder, open_place, place_uri
from headgate.core.chain.context import OperatorContext

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
        """Whether a hidden file is of a writer in whose place this one has come."""
        return (
            hidden["owner"] == self.owner
            and int(hidden["subtask"]) % self.parallelism == self.subtask
            # One that was frozen, and wakes, must not touch what its successors write.
            and int(hidden["began"], 16) <= self.began_ms
            and hidden["token"] != self.token
        )


def part_owner(context: OperatorContext, prefix: str) -> PartOwner:
    """Of the writer of one task; jobs without an id are told by their names and their parts'."""
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
    """What the marker says: where the savepoint is written. No password is written down."""
    return _PASSWORD.sub("", directory).encode()


def remove_leftovers(place: PartFolder, own: PartOwner, deep: bool) -> None:
    """Remove what writers before this one have left, and no checkpoint or savepoint needs.

    ``deep``: parts may stand in folders below that of the sink. What cannot be removed stays, with
    a warning: it is hidden, and the next run tries again.
    """
    problem: Exception | None = None
    try:
        there = set(place.names(deep))
        for name in sorted(_unneeded(place, own, there)):
            try:
                place.remove(name)
            except OSError as error:
                problem = error
    except (OSError, ConnectorError) as error:
        problem = error
    if problem is not None:
        log.warning(
            "%s: what dead attempts have left stays for now: %s",
            place.shown(""),
            str(problem).partition("\n")[0],
        )


def _unneeded(place: PartFolder, own: PartOwner, there: set[str]) -> Iterator[str]:
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
        elif not _is_needed(place, marker):
            yield marker
            yield name


def _is_needed(place: PartFolder, marker: str) -> bool:
    """Whether the savepoint of a marker is complete, or may be.

    It may be moved later on, so that once it was seen the marker names no place any more.
    """
    directory = place.read(marker).decode(errors="replace")
    if not directory:
        return True
    try:
        is_complete = open_place(place_uri(directory)).has(SAVEPOINT_METADATA)
    except (OSError, ConnectorError) as error:
        log.warning(
            "%s: parts of savepoint %s stay: it cannot be read (%s)",
            place.shown(marker),
            directory,
            str(error).partition("\n")[0],
        )
        return True
    if is_complete:
        place.create(marker, replace=True).close()
    return is_complete
