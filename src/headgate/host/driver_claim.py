"""Whose a job is: each driver puts a file into the job's folder, and removes those before it.

Law: of all drivers of a job at most one finds its file. One that looks for it behind what it has
written, too, before it tells anybody, cannot be missed by a successor that looks around behind its
claim: either the first one knows that it is over, or the second one sees what was written.
"""

import secrets
from typing import Final

from headgate.base.checkpoint_errors import StorageUnusable
from headgate.base.job_errors import JobTakenOver
from headgate.host.checkpoint_folder import Folder

DRIVER: Final = "driver-"


class DriverClaim:
    """Of one driver to one job; it may be used by any thread."""

    def __init__(self, jobs: Folder, job: str) -> None:
        """``jobs``: the folder of the job's checkpoints."""
        self._jobs = jobs
        self._job = job
        self._name = f"{DRIVER}{secrets.token_hex(8)}"

    def take(self) -> None:
        """From here on no other driver has the job. Raises CheckpointError."""
        self._jobs.make()
        # In this order, so that of two that begin at the same time one is removed at least.
        self._jobs.put(self._name, b"")
        for one in self._jobs.entries():
            if one.name.startswith(DRIVER) and one.name != self._name:
                self._jobs.remove(one.name)

    def check(self) -> None:
        """Raises JobTakenOver; or StorageUnusable if all of the job's folder is gone."""
        if self._jobs.has(self._name):
            return
        if not self._jobs.entries():
            raise StorageUnusable(
                self._jobs.shown, "is gone", "check that the storage is there, or mounted"
            )
        raise JobTakenOver(self._job, self._jobs.at(self._name))

    def release(self) -> None:
        """The job is over; its folder goes if nothing is left in it."""
        self._jobs.remove(self._name)
        if not self._jobs.entries():
            self._jobs.remove_all()
