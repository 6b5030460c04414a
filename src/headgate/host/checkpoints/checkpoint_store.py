"""The checkpoints of all jobs in one folder: stored, found, checked, dropped.

``<dir>/<job>/chk-<id>/`` holds files of tasks and, written last, the metadata; ``shared/`` beside
it holds files that several checkpoints name. Law: a checkpoint with metadata is complete, and loses
no file before its metadata is gone, whatever happens to others. One driver completes and drops
checkpoints, any number of tasks write.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from headgate.base.checkpoints import CheckpointKind, Metadata
from headgate.base.errors import (
    CheckpointCorrupt,
    CheckpointError,
    CheckpointMissing,
    StorageUnusable,
)
from headgate.host.checkpoints.folder import Folder, open_folder
from headgate.host.checkpoints.location import (
    SHARED,
    CheckpointLocation,
    checkpoint_location,
    checkpoint_number,
    files_of,
    folder_of_job,
    read_location,
    savepoint_location,
)
from headgate.host.checkpoints.metadata import (
    METADATA_FILE,
    CheckpointKey,
    encode_metadata,
    unsigned_files,
)
from headgate.host.checkpoints.pieces import missing_files, shared_beginning

log = logging.getLogger(__name__)

_DEPTH: Final = 2
"""Levels below the storage's folder: jobs, then checkpoints."""


@dataclass(frozen=True, slots=True)
class FoundCheckpoint:
    """A folder of a checkpoint: complete, damaged (``error`` says why) or unfinished."""

    location: CheckpointLocation
    checkpoint: int | None
    """By the metadata; without it, by the folder's name."""
    metadata: Metadata | None = None
    error: CheckpointError | None = None

    @property
    def is_complete(self) -> bool:
        return self.metadata is not None

    @property
    def problem(self) -> str:
        return "" if self.error is None else str(self.error)


@dataclass(frozen=True, slots=True)
class RestoreCandidates:
    """A job's newest intact checkpoint, and the damaged ones that are newer."""

    latest: FoundCheckpoint | None
    damaged: tuple[FoundCheckpoint, ...]
    """The newest first."""


def open_store(where: str, signing: CheckpointKey | None = None) -> "CheckpointStore":
    """The checkpoints in a folder, which is made if need be; raises StorageUnusable.

    ``where`` is a local path or a URI that pyarrow knows.
    """
    folder = open_folder(where, signing=signing)
    folder.make()
    return CheckpointStore(folder)


class CheckpointStore:
    """All checkpoints below one folder. It holds nothing open; any thread may use it."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    def location(self, job: str, checkpoint: int) -> CheckpointLocation:
        """Where a checkpoint is that exists or is about to be taken."""
        return checkpoint_location(folder_of_job(self.folder, job), checkpoint)

    def next_id(self, job: str) -> int:
        """Above that of every checkpoint of the job, complete or not. Ask before cleaning."""
        return max((number for number, _ in self._locations(job)), default=0) + 1

    def list_checkpoints(self, job: str) -> list[FoundCheckpoint]:
        """Checkpoints of a job, the oldest first; savepoints are elsewhere."""
        return [_found_in_job(location, job, number) for number, location in self._locations(job)]

    def restore_candidates(self, job: str) -> RestoreCandidates:
        """The newest that is complete and has all its files, and those that are damaged above it.

        Raises StorageUnusable if the storage does not answer, since an older one is no answer then.
        """
        damaged: list[FoundCheckpoint] = []
        for number, location in reversed(self._locations(job)):
            found = _found_in_job(location, job, number)
            if found.metadata is not None:
                errors = missing_files(found.location, found.metadata)
                if not errors:
                    return RestoreCandidates(found, tuple(damaged))
                found = FoundCheckpoint(location, number, error=next(iter(errors.values())))
            if found.error is not None:
                log.warning("checkpoint %d of job %s is damaged: %s", number, job, found.problem)
                damaged.append(found)
        return RestoreCandidates(None, tuple(damaged))

    def drop(self, location: CheckpointLocation) -> None:
        """Delete a checkpoint, with the shared files that no other complete one names."""
        try:
            named = files_of(location.read_metadata())
        except (CheckpointMissing, CheckpointCorrupt):
            named = {}  # what it names is an orphan from now on, see clean_abandoned
        # First: from here on it is no checkpoint, even if the machine crashes.
        location.own.remove(METADATA_FILE)
        with suppress(CheckpointMissing):
            location.own.settle()
        if shared := location.shared_files(named):
            others = self._named_by_all(location.own.parent())
            for path in shared:
                if others is not None and path not in others:
                    folder, name = location.locate(path)
                    folder.remove(name)
        location.own.remove_all()

    def drop_all(self, job: str) -> None:
        """Delete all checkpoints of a job, and what they share."""
        for _, location in self._locations(job):
            with suppress(CheckpointCorrupt):  # a link: the link itself goes
                location.own.remove(METADATA_FILE)
            location.own.remove_all()
        job_folder = folder_of_job(self.folder, job)
        job_folder.child(SHARED).remove_all()
        job_folder.remove_if_empty()

    def clean_abandoned(self, job: str, before_ms: int) -> tuple[str, ...]:
        """Delete what belongs to no complete checkpoint and was last changed before that time.

        Folders without metadata, and shared files that nobody names; returns their paths.
        Folders of damaged checkpoints stay, and with them all shared files.
        """
        removed = []
        for _, location in self._locations(job):
            with suppress(CheckpointCorrupt):  # a link in its place is damage, too
                if not location.is_complete() and _last_change(location.own) < before_ms:
                    location.own.remove_all()
                    removed.append(location.shown)
        job_folder = folder_of_job(self.folder, job)
        shared = job_folder.child(SHARED)
        old = [entry.name for entry in shared.entries() if entry.modified_ms < before_ms]
        named = self._named_by_all(job_folder) if old else None
        for name in old:
            path = f"{SHARED}/{name}"
            if named is not None and path not in named:
                shared.remove(name)
                removed.append(shared.at(name))
        return tuple(removed)

    def _locations(self, job: str) -> list[tuple[int, CheckpointLocation]]:
        return sorted(_locations_in(folder_of_job(self.folder, job)), key=lambda pair: pair[0])

    def _named_by_all(self, job_folder: Folder) -> set[str] | None:
        """Files that complete checkpoints of a job name; None: one of them cannot be read."""
        named: set[str] = set()
        for number, location in _locations_in(job_folder):
            found = _found_at(location, number)
            if found.problem:
                log.warning("all shared files in %s stay: %s", job_folder.shown, found.problem)
                return None
            if found.metadata is not None:
                named |= files_of(found.metadata).keys()
        return named


def complete(location: CheckpointLocation, metadata: Metadata) -> None:
    """Write the metadata; when this returns the checkpoint exists, and outlives a crash.

    Raises CheckpointMissing if a file that it names is not visible from here, CheckpointCorrupt
    if one is too short, StorageUnusable if the metadata cannot be written, or exists already.
    """
    for error in missing_files(location, metadata).values():
        if isinstance(error, CheckpointMissing):
            advice = "the folder of checkpoints must be one that all hosts and the driver share"
            raise CheckpointMissing(error.path, "is not to be seen from the driver", advice)
        raise error
    location.own.make()
    if location.shared_files(files_of(metadata)):
        location.shared.settle()
    signing = location.own.signing
    assert signing is None or not unsigned_files(metadata), "tasks have to report digests"
    if not location.own.put(METADATA_FILE, encode_metadata(metadata, signing)):
        raise StorageUnusable(
            location.shown,
            "is complete already, by another run of the job",
            "end that run, or give this one a job id or folder of its own",
        )


def discard(location: CheckpointLocation) -> None:
    """Delete an aborted checkpoint or savepoint; a complete one stays. Never raises.

    With it go the shared files that it brought, which nobody else has named yet; those that are
    still being written go with their writers, or with ``clean_abandoned``.
    """
    with suppress(CheckpointError):
        if location.is_complete():
            return
        location.own.remove_all()
        beginning = shared_beginning(location)
        for entry in location.shared.entries() if beginning else ():
            if entry.name.startswith(beginning):
                location.shared.remove(entry.name)


def damages_of(damaged: Iterable[FoundCheckpoint]) -> tuple[str, ...]:
    """What is wrong with each, without advice."""
    errors = [found.error for found in damaged if found.error is not None]
    return tuple(f"{error.path}: {error.problem}" for error in errors)


def find_checkpoints(where: str, signing: CheckpointKey | None = None) -> list[FoundCheckpoint]:
    """Checkpoints and savepoints at a path and below, for the command line.

    Raises CheckpointMissing if there is nothing at the path, or StorageUnusable.
    """
    folder = open_folder(where, signing=signing)
    folder = folder.parent() if folder.name == METADATA_FILE else folder
    if not folder.is_flat and folder.look() is None:
        raise CheckpointMissing(folder.shown, "is not there", "check the path")
    return list(_walk(folder, _DEPTH))


def _walk(folder: Folder, depth: int) -> Iterator[FoundCheckpoint]:
    entries = folder.entries()
    number = checkpoint_number(folder.name)
    below = [entry.name for entry in entries if entry.is_folder]
    if any(entry.name == METADATA_FILE for entry in entries):
        found = _found_at(savepoint_location(folder), number)
        known = found.metadata
        if known is None or known.kind is CheckpointKind.SAVEPOINT or number is None:
            yield found
        else:  # of whatever job: the folder above may be a copy under another name
            yield _in_place(found, known.job, number)
    elif number is not None and not below:  # a job's folder may be named like a checkpoint's
        yield FoundCheckpoint(checkpoint_location(folder.parent(), number), number)
    elif depth:
        for name in sorted(below, key=lambda name: (checkpoint_number(name) or 0, name)):
            yield from _walk(folder.child(name), depth - 1)


def _locations_in(job_folder: Folder) -> Iterator[tuple[int, CheckpointLocation]]:
    """The checkpoints of a job, by number, in no order; links in their place, too."""
    for entry in job_folder.entries():
        number = checkpoint_number(entry.name)
        if number is not None and (entry.is_folder or entry.is_strange):
            yield number, checkpoint_location(job_folder, number)


def _found_at(location: CheckpointLocation, number: int | None) -> FoundCheckpoint:
    """What the folder holds; raises StorageUnusable."""
    try:
        known, metadata = read_location(location.own)
    except CheckpointMissing:
        return FoundCheckpoint(location, number)
    except CheckpointCorrupt as error:
        return FoundCheckpoint(location, number, error=error)
    return FoundCheckpoint(known, metadata.checkpoint, metadata)


def _found_in_job(location: CheckpointLocation, job: str, number: int) -> FoundCheckpoint:
    """Look for a checkpoint in a job's folder."""
    return _in_place(_found_at(location, number), job, number)


def _in_place(found: FoundCheckpoint, job: str, number: int) -> FoundCheckpoint:
    """What was found where this checkpoint belongs: metadata of another one is damage."""
    known = found.metadata
    if known is None or (known.job, known.checkpoint) == (job, number):
        return found
    problem = f"is checkpoint {known.checkpoint} of job {known.job!r}, which is out of place"
    place = found.location.own
    return FoundCheckpoint(
        checkpoint_location(place.parent(), number),
        number,
        error=CheckpointCorrupt(place.at(METADATA_FILE), problem),
    )


def _last_change(folder: Folder) -> int:
    """When anything in it was changed last, or the folder itself if it is empty."""
    itself = folder.look()
    changes = [entry.modified_ms for entry in folder.entries()]
    return max(changes, default=itself.modified_ms if itself else 0)
