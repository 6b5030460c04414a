"""The checkpoints and savepoints of one job, as its driver completes and drops them.

Law: nothing is deleted that is complete and was not dropped, or is another driver's; a driver whose
job another one has taken over changes nothing. What a job has left behind and belongs to no
checkpoint is deleted while none of its tasks runs. A temporary storage goes with the job.
"""

import logging
import tempfile
import time

from headgate.base.checkpoints import Metadata
from headgate.base.errors import (
    CheckpointCorrupt,
    CheckpointError,
    CheckpointMissing,
)
from headgate.control.checkpoint_effects import Discard, Drop, StoreCheckpoint
from headgate.host.checkpoints.checkpoint_store import (
    CheckpointStore,
    complete,
    discard,
    open_store,
)
from headgate.host.checkpoints.driver_claim import DriverClaim
from headgate.host.checkpoints.folder import Folder, open_folder, storage_errors
from headgate.host.checkpoints.location import (
    CheckpointLocation,
    folder_of_job,
    resolve,
    savepoint_location,
)
from headgate.host.checkpoints.piece_reader import missing_files
from headgate.host.checkpoints.signing import CheckpointKey
from headgate.host.checkpoints.stopped_with import (
    StoppedWith,
    find_stop,
    forget_stop,
    has_stop,
    note_stop,
)
from headgate.host.files.owned_folder import OwnedFolder

log = logging.getLogger(__name__)


class JobCheckpoints:
    """Where one job keeps its checkpoints; it may be used by any thread."""

    def __init__(
        self,
        job: str,
        where: str = "",
        *,
        temporary: OwnedFolder | None = None,
        signing: CheckpointKey | None = None,
    ) -> None:
        """Nowhere: the job has savepoints alone, each in a directory of its own.

        Raises StorageUnusable if nothing can be written there.
        """
        self.signing = signing
        self.job = job
        self._temporary = temporary
        self._undropped: dict[int, Drop] = {}
        self._claim: DriverClaim | None = None
        self.storage: CheckpointStore | None = None
        if where:
            self.storage = open_store(where, signing)
            self.storage.probe()

    @classmethod
    def temporary(cls, job: str, signing: CheckpointKey | None = None) -> "JobCheckpoints":
        """In a folder of this machine that goes with the job."""
        with storage_errors(tempfile.gettempdir()):
            folder = OwnedFolder("checkpoints")
        return cls(job, str(folder.path), temporary=folder, signing=signing)

    @property
    def is_lasting(self) -> bool:
        """Whether it may outlive the job."""
        return self.storage is not None and self._temporary is None

    @property
    def uri(self) -> str:
        """Of the folder, for the workers; empty: there is none."""
        return "" if self.storage is None else self.storage.folder.uri

    @property
    def shown(self) -> str:
        """The folder, for messages."""
        return "" if self.storage is None else self.storage.folder.shown

    @property
    def jobs(self) -> Folder | None:
        """The folder of the job's checkpoints in the storage."""
        return None if self.storage is None else folder_of_job(self.storage.folder, self.job)

    def claim(self) -> None:
        """The job is this driver's from here on, and no other's.

        Raises JobTakenOver if another driver begins with it at the same moment, CheckpointError.
        """
        if self.is_lasting and self.jobs is not None:
            claim = DriverClaim(self.jobs, self.job)
            claim.take()
            self._claim = claim

    def check_claim(self) -> None:
        """Raises JobTakenOver if another driver has claimed the job since, or CheckpointError."""
        if self._claim is not None:
            self._claim.check()

    def release(self) -> None:
        """The job is over, for this driver. Raises CheckpointError."""
        claim, self._claim = self._claim, None
        if self._temporary is not None:
            self._temporary.close()
        elif claim is not None:
            claim.release()

    def stopped_with(self) -> StoppedWith | None:
        """The savepoint that an earlier driver has stopped the job with, or was about to."""
        return None if self.jobs is None else find_stop(self.jobs)

    def place(self, checkpoint: int, directory: str) -> CheckpointLocation:
        """Of a savepoint its directory, of a checkpoint one in the job's folder."""
        if directory:
            return savepoint_location(open_folder(directory, signing=self.signing))
        assert self.storage is not None, f"checkpoint {checkpoint} without a storage"
        return self.storage.place(self.job, checkpoint)

    def damage_of(self, start: StoreCheckpoint) -> CheckpointError | None:
        """What is wrong with a complete checkpoint, as far as a listing tells.

        Raises StorageUnusable.
        """
        place = self.place(start.metadata.checkpoint, start.directory)
        if start.directory:  # a savepoint, or another job's checkpoint that the user names
            try:
                place, _ = resolve(start.directory, signing=self.signing)
            except (CheckpointMissing, CheckpointCorrupt) as error:
                return error
        elif not place.is_complete():
            return CheckpointMissing(place.shown, "is not there", "restore from another checkpoint")
        wrong = missing_files(place, start.metadata)
        return next(iter(wrong.values()), None)

    def store(self, effect: StoreCheckpoint) -> None:
        """Complete a checkpoint; raises CheckpointError if that cannot be done, or JobTakenOver."""
        self.check_claim()
        number, jobs = effect.metadata.checkpoint, self.jobs
        place = self.place(number, effect.directory)
        complete(place, effect.metadata)
        if effect.ends_job and jobs is not None:
            note_stop(jobs, number, place.own)
        self.check_claim()  # else it stays: the other one may have seen it, and go on from there

    def drop(self, effect: Drop) -> None:
        """Delete one that is complete, or may be. Raises CheckpointError or JobTakenOver."""
        number, jobs = effect.metadata.checkpoint, self.jobs
        place = self.place(number, effect.directory)
        if jobs is not None:
            self._undropped[number] = effect
        self.check_claim()
        if effect.directory and jobs is not None:
            forget_stop(jobs, number)
        if _is_of_another(place, effect.metadata):
            log.warning(
                "%s stays: another driver of job %s has completed it", place.shown, self.job
            )
        elif self.storage is not None:
            self.storage.drop(place)
        else:
            CheckpointStore(place.own.parent()).drop(place)
        self._undropped.pop(number, None)

    def drop_above(self, checkpoint: int) -> None:
        """Make sure that no newer one is there, before a new attempt goes on from this one.

        One that could not be stored, so it was said, may be complete all the same, and could not be
        dropped: a later driver would go on from it, and sinks have begun anew from this one.
        Raises CheckpointError as long as that is so.
        """
        for number in [one for one in self._undropped if one > checkpoint]:
            try:
                self.drop(self._undropped[number])
            except CheckpointError:
                self.check_claim()  # of a storage that is away nobody can say what is there
                if self._counts(self._undropped[number]):
                    raise

    def _counts(self, effect: Drop) -> bool:
        """Whether a later driver might go on from it."""
        number, jobs = effect.metadata.checkpoint, self.jobs
        if effect.directory:
            return jobs is not None and has_stop(jobs, number)
        return self.place(number, "").is_complete()

    def discard(self, effect: Discard) -> None:
        """Delete what was written of one that came to nothing. Raises as ``drop`` does."""
        self.check_claim()
        discard(self.place(effect.checkpoint, effect.directory))

    def clean(self) -> None:
        """Delete what belongs to no checkpoint, while no task of the job runs.

        Raises JobTakenOver, nothing else.
        """
        if self.storage is None:
            return
        now_ms = time.time_ns() // 1_000_000
        try:
            self.check_claim()
            for path in self.storage.clean_abandoned(self.job, now_ms + 1):
                log.debug("%s belonged to no checkpoint and is removed", path)
        except CheckpointError as error:  # it can be done later just as well
            log.warning("what job %s has left behind stays for now: %s", self.job, error)

    def close(self, keeps: bool) -> None:
        """The job is over: ``keeps`` its checkpoints, unless they are temporary.

        Raises CheckpointError or JobTakenOver.
        """
        if self.is_lasting and self.storage is not None:
            self.check_claim()
            if keeps:
                self.clean()
            else:
                self.storage.drop_all(self.job)
        self.release()


def _is_of_another(place: CheckpointLocation, metadata: Metadata) -> bool:
    """Two drivers of a job, one of which was thought to be dead, may use the same number."""
    try:
        return place.read_metadata() != metadata
    except (CheckpointMissing, CheckpointCorrupt):
        return False
