"""The checkpoints of jobs in a folder: written, found, checked, dropped.

``<dir>/<job>/chk-<id>/`` holds files of tasks and, written last, the metadata; ``shared/`` beside
it holds files that several checkpoints name. Law: a checkpoint with metadata is complete; it loses
nothing before its metadata is gone, whatever becomes of others. One driver completes and drops,
any number of tasks write.
"""

import logging
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from headgate.base.checkpoints import Metadata
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
from headgate.host.checkpoints.metadata import METADATA_FILE, encode_metadata, unsigned_files
from headgate.host.checkpoints.part_writer import shared_beginning
from headgate.host.checkpoints.piece_reader import missing_files
from headgate.host.checkpoints.signing import CheckpointKey
from headgate.host.checkpoints.stopped_with import forget_stops

log = logging.getLogger(__name__)

_PROBE: Final = ".headgate-probe"
_DEPTH: Final = 2
"""Folders of jobs stand in the storage's, those of checkpoints in the job's."""


@dataclass(frozen=True, slots=True)
class FoundCheckpoint:
    """A folder of a checkpoint: complete, damaged (``error`` says why) or unfinished."""

    place: CheckpointLocation
    checkpoint: int | None
    """By the metadata; by the folder's name if there is none."""
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
    """What a job has: the newest checkpoint that is whole, and damaged ones that are newer."""

    latest: FoundCheckpoint | None
    damaged: tuple[FoundCheckpoint, ...]
    """The newest first."""


def open_store(where: str, signing: CheckpointKey | None = None) -> "CheckpointStore":
    """The storage in a folder, which is made if need be; raises StorageUnusable.

    ``where`` is a path of this machine or a URI that pyarrow knows.
    """
    folder = open_folder(where, signing=signing)
    folder.make()
    return CheckpointStore(folder)


class CheckpointStore:
    """All checkpoints below one folder. It holds nothing open and may be used by any thread."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    def probe(self) -> None:
        """Raises StorageUnusable unless a file can be written and removed."""
        self.folder.remove(_PROBE)
        self.folder.put(_PROBE, b"")
        self.folder.remove(_PROBE)

    def place(self, job: str, checkpoint: int) -> CheckpointLocation:
        """Of a checkpoint that is there, or is about to be taken."""
        return checkpoint_location(folder_of_job(self.folder, job), checkpoint)

    def next_id(self, job: str) -> int:
        """Above that of every checkpoint of the job, complete or not. Ask before cleaning."""
        numbers = [number for number, _ in self._places(job)]
        return max(numbers, default=0) + 1

    def list_checkpoints(self, job: str) -> list[FoundCheckpoint]:
        """Of a job, the oldest first; savepoints stand elsewhere."""
        return [_look_in_job(place, job, number) for number, place in self._places(job)]

    def survey(self, job: str) -> "RestoreCandidates":
        """The newest that is complete and has all its files, and those that are damaged above it.

        Raises StorageUnusable if the storage does not answer: an older one is no answer then.
        """
        damaged: list[FoundCheckpoint] = []
        for number, place in reversed(list(self._places(job))):
            found = _look_in_job(place, job, number)
            if found.metadata is not None:
                wrong = missing_files(found.place, found.metadata)
                if not wrong:
                    return RestoreCandidates(found, tuple(damaged))
                found = FoundCheckpoint(place, number, error=next(iter(wrong.values())))
            if found.error is not None:
                log.warning("checkpoint %d of job %s is damaged: %s", number, job, found.problem)
                damaged.append(found)
        return RestoreCandidates(None, tuple(damaged))

    def drop(self, place: CheckpointLocation, keep: Collection[str] = ()) -> None:
        """Delete a checkpoint, with the shared files that no other complete one names.

        ``keep``: paths of pieces in ``shared/`` that checkpoints under way may name.
        """
        try:
            named = files_of(place.read_metadata())
        except (CheckpointMissing, CheckpointCorrupt):
            named = {}  # whatever it names is an orphan from now on, see clean_abandoned
        # First: from here on it is no checkpoint, even if the machine crashes.
        place.own.remove(METADATA_FILE)
        with suppress(CheckpointMissing):
            place.own.settle()
        if shared := place.shared_files(named):
            others = self._named_by_all(place.own.parent())
            for path in shared:
                if others is not None and path not in others and path not in keep:
                    folder, name = place.locate(path)
                    folder.remove(name)
        place.own.remove_all()

    def drop_all(self, job: str) -> None:
        """Delete all checkpoints of a job that nobody needs any more, and what they share."""
        for _, place in self._places(job):
            with suppress(CheckpointCorrupt):  # a link, which goes itself
                place.own.remove(METADATA_FILE)
            place.own.remove_all()
        jobs = folder_of_job(self.folder, job)
        jobs.child(SHARED).remove_all()
        forget_stops(jobs)
        jobs.remove_if_empty()

    def clean_abandoned(
        self, job: str, before_ms: int, keep: Collection[str] = ()
    ) -> tuple[str, ...]:
        """Delete what belongs to no complete checkpoint and was changed last before that time.

        Folders without metadata, and shared files that nobody names; answers with their paths.
        Folders of damaged checkpoints stay, and with them all shared files.
        """
        removed = []
        for _, place in self._places(job):
            with suppress(CheckpointCorrupt):  # a link in its place is damage, too
                if not place.is_complete() and _last_change(place.own) < before_ms:
                    place.own.remove_all()
                    removed.append(place.shown)
        jobs = folder_of_job(self.folder, job)
        shared = jobs.child(SHARED)
        old = [one for one in shared.entries() if one.modified_ms < before_ms]
        named = self._named_by_all(jobs) if old else None
        for one in old:
            path = f"{SHARED}/{one.name}"
            if named is not None and path not in named and path not in keep:
                shared.remove(one.name)
                removed.append(shared.at(one.name))
        return tuple(removed)

    def _places(self, job: str) -> Iterator[tuple[int, CheckpointLocation]]:
        """By number, the lowest first."""
        jobs = folder_of_job(self.folder, job)
        found = [one for one in jobs.entries() if one.is_folder or one.is_strange]
        numbers = [checkpoint_number(one.name) for one in found]
        for number in sorted(number for number in numbers if number is not None):
            yield number, checkpoint_location(jobs, number)

    def _named_by_all(self, jobs: Folder) -> set[str] | None:
        """Files that complete checkpoints of a job name; None: one of them cannot be read."""
        named: set[str] = set()
        for one in jobs.entries():
            number = checkpoint_number(one.name)
            if number is None or not (one.is_folder or one.is_strange):
                continue
            found = _look(checkpoint_location(jobs, number), number)
            if found.problem:
                log.warning("all shared files in %s stay: %s", jobs.shown, found.problem)
                return None
            if found.metadata is not None:
                named |= files_of(found.metadata).keys()
        return named


def complete(place: CheckpointLocation, metadata: Metadata) -> None:
    """Write the metadata; when this returns the checkpoint is there, and outlives a crash.

    Raises CheckpointMissing if a file that it names is not to be seen from here, CheckpointCorrupt
    if one is too short, StorageUnusable if the metadata cannot be written, or is there already.
    """
    for error in missing_files(place, metadata).values():
        if isinstance(error, CheckpointMissing):
            advice = "the folder of checkpoints must be one that all hosts and the driver share"
            raise CheckpointMissing(error.path, "is not to be seen from the driver", advice)
        raise error
    place.own.make()
    if place.shared_files(files_of(metadata)):
        place.shared.settle()
    signing = place.own.signing
    assert signing is None or not unsigned_files(metadata), "tasks were to tell digests"
    if not place.own.put(METADATA_FILE, encode_metadata(metadata, signing)):
        raise StorageUnusable(
            place.shown,
            "is complete already, by another run of the job",
            "end that run, or give this one a job id or folder of its own",
        )


def discard(place: CheckpointLocation) -> None:
    """Delete a checkpoint or savepoint that was given up; a complete one stays. Never raises.

    With it go shared files that came with it, which nobody else has named yet; those that are
    still being written go with their writers, or with ``clean_abandoned``.
    """
    with suppress(CheckpointError):
        if place.is_complete():
            return
        place.own.remove_all()
        beginning = shared_beginning(place)
        for one in place.shared.entries() if beginning else ():
            if one.name.startswith(beginning):
                place.shared.remove(one.name)


def damages_of(damaged: Iterable[FoundCheckpoint]) -> tuple[str, ...]:
    """What is wrong with each, without advice."""
    errors = [one.error for one in damaged if one.error is not None]
    return tuple(f"{error.path}: {error.problem}" for error in errors)


def find_checkpoints(where: str, signing: CheckpointKey | None = None) -> list[FoundCheckpoint]:
    """Checkpoints and savepoints at a path and below, as a person asks for them.

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
    below = [one.name for one in entries if one.is_folder]
    if any(one.name == METADATA_FILE for one in entries):
        yield _look(savepoint_location(folder), number)
    elif number is not None and not below:  # a job may be called like a checkpoint
        yield FoundCheckpoint(checkpoint_location(folder.parent(), number), number)
    elif depth:
        for name in sorted(below, key=lambda name: (checkpoint_number(name) or 0, name)):
            yield from _walk(folder.child(name), depth - 1)


def _look(place: CheckpointLocation, number: int | None) -> FoundCheckpoint:
    """What stands there; raises StorageUnusable."""
    try:
        known, metadata = read_location(place.own)
    except CheckpointMissing:
        return FoundCheckpoint(place, number)
    except CheckpointCorrupt as error:
        return FoundCheckpoint(place, number, error=error)
    return FoundCheckpoint(known, metadata.checkpoint, metadata)


def _look_in_job(place: CheckpointLocation, job: str, number: int) -> FoundCheckpoint:
    """The same in a job's own folder, where another one's metadata is out of place."""
    found = _look(place, number)
    known = found.metadata
    if known is not None and (known.job, known.checkpoint) != (job, number):
        problem = f"is checkpoint {known.checkpoint} of job {known.job!r}, which is out of place"
        return FoundCheckpoint(
            place, number, error=CheckpointCorrupt(place.own.at(METADATA_FILE), problem)
        )
    return found


def _last_change(folder: Folder) -> int:
    """Of anything in it; of the folder itself if there is nothing."""
    itself = folder.look()
    changes = [one.modified_ms for one in folder.entries()]
    return max(changes, default=itself.modified_ms if itself else 0)
