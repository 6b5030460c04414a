"""The checkpoints and savepoints of one job, as its driver stores and drops them.

Law: nothing is deleted that is complete and was not dropped, or that another driver completed; a
driver whose job another one has taken over changes nothing. What an earlier attempt has left and no
checkpoint names is deleted while no task of the job runs. A temporary storage goes with the job.

The savepoint that a job is stopped with is noted in the job's folder before sinks are told to
commit. Law: a later driver finds the note, and restores no older checkpoint.
"""

import logging
import tempfile
from dataclasses import dataclass
from typing import Final

from headgate.base.checkpoints import Metadata
from headgate.base.errors import (
    CheckpointCorrupt,
    CheckpointError,
    CheckpointMissing,
)
from headgate.control.effects import DiscardStates, DropCheckpoint, StoreCheckpoint
from headgate.host.checkpoints.checkpoint_store import (
    CheckpointStore,
    complete,
    discard,
    open_store,
)
from headgate.host.checkpoints.driver_claim import Claim, claim_of
from headgate.host.checkpoints.folder import Folder, open_folder, storage_errors
from headgate.host.checkpoints.location import (
    CheckpointLocation,
    folder_of_job,
    resolve,
    savepoint_location,
)
from headgate.host.checkpoints.metadata import CheckpointKey
from headgate.host.checkpoints.pieces import missing_files
from headgate.host.files.owned_folder import OwnedFolder
from headgate.host.net.loop import wall_ms

log = logging.getLogger(__name__)

STOPPED: Final = "stopped-with-"


class JobCheckpoints:
    """Where one job keeps its checkpoints; any thread may use it."""

    def __init__(
        self,
        job: str,
        where: str = "",
        *,
        temporary: OwnedFolder | None = None,
        signing: CheckpointKey | None = None,
    ) -> None:
        """Without ``where`` the job has only savepoints, each in a folder that its user names.

        Raises StorageUnusable if nothing can be written there.
        """
        self.signing = signing
        self.job = job
        self.folder: Folder | None = None
        """Folder of the job's checkpoints in the storage."""
        self._temporary = temporary
        self._undropped: dict[int, DropCheckpoint] = {}
        self._claim: Claim | None = None
        self.storage: CheckpointStore | None = None
        if where:
            self.storage = open_store(where, signing)
            self.storage.folder.probe()
            self.folder = folder_of_job(self.storage.folder, job)

    @classmethod
    def temporary(cls, job: str, signing: CheckpointKey | None = None) -> "JobCheckpoints":
        """In a local folder that goes with the job."""
        with storage_errors(tempfile.gettempdir()):
            folder = OwnedFolder("checkpoints")
        return cls(job, str(folder.path), temporary=folder, signing=signing)

    @property
    def is_lasting(self) -> bool:
        """Whether it may outlive the job."""
        return self.storage is not None and self._temporary is None

    @property
    def uri(self) -> str:
        """Where the storage is, for the workers; empty: there is none."""
        return "" if self.storage is None else self.storage.folder.uri

    @property
    def shown(self) -> str:
        """The storage, for messages."""
        return "" if self.storage is None else self.storage.folder.shown

    def claim(self) -> None:
        """Make the job this driver's, and no other's.

        Raises JobTakenOver if another driver claims it at the same moment, CheckpointError.
        """
        if self.is_lasting and self.folder is not None:
            claim = claim_of(self.folder, self.job)
            claim.take()
            self._claim = claim

    def check_claim(self) -> None:
        """Raises JobTakenOver if another driver has claimed the job since, or CheckpointError."""
        if self._claim is not None:
            self._claim.check()

    def release(self) -> None:
        """This driver is done with the job. Raises CheckpointError."""
        claim, self._claim = self._claim, None
        if self._temporary is not None:
            self._temporary.close()
        elif claim is not None:
            claim.release()

    def stopped_with(self) -> "StoppedWith | None":
        """The savepoint that an earlier driver has stopped the job with, or was about to."""
        return None if self.folder is None else find_stop(self.folder)

    def location(self, checkpoint: int, directory: str) -> CheckpointLocation:
        """Where a savepoint is, or a checkpoint: in its own directory, or in the job's folder."""
        if directory:
            return savepoint_location(open_folder(directory, signing=self.signing))
        assert self.storage is not None, f"checkpoint {checkpoint} without a storage"
        return self.storage.location(self.job, checkpoint)

    def damage_of(self, start: StoreCheckpoint) -> CheckpointError | None:
        """What is wrong with a complete checkpoint, as far as a listing shows.

        Raises StorageUnusable.
        """
        location = self.location(start.metadata.checkpoint, start.directory)
        if start.directory:  # a savepoint, or another job's checkpoint that the user names
            try:
                location, _ = resolve(start.directory, signing=self.signing)
            except (CheckpointMissing, CheckpointCorrupt) as error:
                return error
        elif not location.is_complete():
            return CheckpointMissing(
                location.shown, "is not there", "restore from another checkpoint"
            )
        return next(iter(missing_files(location, start.metadata).values()), None)

    def store(self, effect: StoreCheckpoint) -> None:
        """Complete a checkpoint; raises CheckpointError if that fails, or JobTakenOver."""
        self.check_claim()
        number, folder = effect.metadata.checkpoint, self.folder
        location = self.location(number, effect.directory)
        complete(location, effect.metadata)
        if effect.ends_job and folder is not None:
            note_stop(folder, number, location.own)
        # If another driver has claimed the job, the checkpoint stays: that one may restore it.
        self.check_claim()

    def drop(self, effect: DropCheckpoint) -> None:
        """Delete a checkpoint that is or may be complete. Raises CheckpointError, JobTakenOver."""
        number, folder = effect.metadata.checkpoint, self.folder
        location = self.location(number, effect.directory)
        if folder is not None:
            self._undropped[number] = effect
        self.check_claim()
        if effect.directory and folder is not None:
            _forget_stop(folder, number)
        if _is_of_another(location, effect.metadata):
            log.warning(
                "%s stays: another driver of job %s has completed it", location.shown, self.job
            )
        else:
            (self.storage or CheckpointStore(location.own.parent())).drop(location)
        self._undropped.pop(number, None)

    def drop_above(self, checkpoint: int) -> None:
        """Make sure that no newer one exists, before a new attempt restores this one.

        A checkpoint that was reported as failed may be complete all the same, and not dropped: a
        later driver would restore it, although sinks have restarted from this one. Raises
        CheckpointError as long as such a checkpoint exists.
        """
        for number in [number for number in self._undropped if number > checkpoint]:
            try:
                self.drop(self._undropped[number])
            except CheckpointError:
                self.check_claim()  # raises if the storage is away: then nobody can say
                if self._is_restorable(self._undropped[number]):
                    raise

    def _is_restorable(self, effect: DropCheckpoint) -> bool:
        """Whether a later driver might restore it."""
        number, folder = effect.metadata.checkpoint, self.folder
        if effect.directory:
            return folder is not None and folder.has(f"{STOPPED}{number}")
        return self.location(number, "").is_complete()

    def discard(self, effect: DiscardStates) -> None:
        """Delete what was written of an aborted checkpoint. Raises as ``drop`` does."""
        self.check_claim()
        discard(self.location(effect.checkpoint, effect.directory))

    def clean(self) -> None:
        """Delete what belongs to no checkpoint, while no task of the job runs.

        Raises JobTakenOver, nothing else.
        """
        if self.storage is None:
            return
        now_ms = wall_ms()
        try:
            self.check_claim()
            for path in self.storage.clean_abandoned(self.job, now_ms + 1):
                log.debug("%s belonged to no checkpoint and is removed", path)
        except CheckpointError as error:  # it can be done later as well
            log.warning("leftover files of job %s are not removed for now: %s", self.job, error)

    def close(self, keeps: bool) -> None:
        """The job is over: ``keeps`` its checkpoints, unless they are temporary.

        Raises CheckpointError or JobTakenOver.
        """
        if self.is_lasting and self.storage is not None and self.folder is not None:
            self.check_claim()
            if keeps:
                self.clean()
            else:
                self.storage.drop_all(self.job)
                for number in _stop_numbers(self.folder):
                    _forget_stop(self.folder, number)
        self.release()


def _is_of_another(location: CheckpointLocation, metadata: Metadata) -> bool:
    """Two drivers of a job, one of which was thought to be dead, may use the same number."""
    try:
        return location.read_metadata() != metadata
    except (CheckpointMissing, CheckpointCorrupt):
        return False


@dataclass(frozen=True, slots=True)
class StoppedWith:
    """The note that checkpoint ``number`` is a savepoint in the folder ``where``."""

    number: int
    where: str

    def resolve(
        self, job: str, signing: CheckpointKey | None = None
    ) -> tuple[CheckpointLocation, Metadata]:
        """The savepoint itself; raises CheckpointError if it was moved or replaced."""
        try:
            location, metadata = resolve(self.where, signing=signing)
        except CheckpointCorrupt:
            raise
        except CheckpointError as error:
            raise self._missing(job, error.problem) from error
        if (metadata.job, metadata.checkpoint) != (job, self.number):
            raise self._missing(job, "is another one now")
        return location, metadata

    def _missing(self, job: str, problem: str) -> CheckpointMissing:
        return CheckpointMissing(
            self.where,
            f"job {job!r} was stopped with this savepoint, which {problem}",
            "say where it is with --from, or give the job another id to begin anew",
        )


def note_stop(job_folder: Folder, number: int, savepoint: Folder) -> None:
    """Before anybody hears that the savepoint is complete. Raises StorageUnusable."""
    job_folder.make()
    # The password is left out; then the savepoint must be named when the job is started again.
    job_folder.put(f"{STOPPED}{number}", savepoint.shown.encode())


def find_stop(job_folder: Folder) -> StoppedWith | None:
    """The newest one; raises StorageUnusable or CheckpointCorrupt."""
    number = max(_stop_numbers(job_folder), default=None)
    if number is None:
        return None
    name = f"{STOPPED}{number}"
    where = job_folder.read(name)
    try:
        return StoppedWith(number, where.decode())
    except UnicodeDecodeError as error:
        raise CheckpointCorrupt(job_folder.at(name), "is no path in UTF-8") from error


def _forget_stop(job_folder: Folder, number: int) -> None:
    job_folder.remove(f"{STOPPED}{number}")


def _stop_numbers(job_folder: Folder) -> list[int]:
    names = [entry.name for entry in job_folder.entries() if entry.name.startswith(STOPPED)]
    ends = [name.removeprefix(STOPPED) for name in names]
    return [int(end) for end in ends if end.isascii() and end.isdecimal()]
