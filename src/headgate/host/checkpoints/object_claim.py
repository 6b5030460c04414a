"""Which driver owns a job in S3: the object ``owner`` in the job's folder names it.

Law: a driver claims a job by creating the object, or by replacing the version that it has read, so
of drivers that claim it at the same moment exactly one succeeds, and the others know at once. A
driver reads the object after it has written a checkpoint and before it reports it; a successor
claims before it lists checkpoints. Nobody deletes a claim that is not its own: a driver that leaves
first replaces its claim by an empty one, which successors leave alone until it is gone.
"""

import logging
import os
import secrets
import socket
import time
from contextlib import suppress
from typing import Any, Final, Protocol

from headgate.base.errors import CheckpointError, JobTakenOver, StorageUnusable
from headgate.host.checkpoints.conditional_puts import ConditionalPuts, Version
from headgate.host.checkpoints.driver_claim import CLAIM, DriverClaim
from headgate.host.checkpoints.folder import Folder

log = logging.getLogger(__name__)

OWNER: Final = "owner"
_FREE: Final = b"free"
_TRIES: Final = 20
_LEAVING_S: Final = 5.0
"""How long a driver may take to delete its claim after it was emptied."""


class Claim(Protocol):
    """The claim of one driver to one job; any thread may use it."""

    def take(self) -> None: ...

    def check(self) -> None: ...

    def release(self) -> None: ...


def claim_of(job_folder: Folder, job: str) -> Claim:
    """The kind of claim that the storage of the job's folder can keep; raises StorageUnusable."""
    puts = job_folder.puts
    if puts is None:
        return DriverClaim(job_folder, job)
    if keeps_conditions(job_folder, puts):
        return ObjectClaim(job_folder, job, puts)
    log.warning(
        "%s replaces objects that were to be created only if absent (If-None-Match): drivers that "
        "start job %s at the same moment are told apart by a listing, which is right only if the "
        "store lists what was just written; use a store with conditional puts",
        job_folder.shown,
        job,
    )
    return DriverClaim(job_folder, job)


def keeps_conditions(folder: Folder, puts: ConditionalPuts) -> bool:
    """Whether the store refuses to create an object twice, and to replace another version."""
    probe = folder.child(f".headgate-probe-{secrets.token_hex(4)}")
    key, shown = probe.key, probe.shown
    try:
        first = puts.create(key, b"first", shown)
        if first is None or puts.create(key, b"second", shown) is not None:
            return False
        second = puts.replace(key, b"second", first, shown)
        return second is not None and puts.replace(key, b"third", first, shown) is None
    finally:
        with suppress(CheckpointError):
            puts.remove(key, shown)


class ObjectClaim:
    """The claim of one driver to one job in S3; any thread may use it."""

    def __init__(self, job_folder: Folder, job: str, puts: ConditionalPuts) -> None:
        self._folder = job_folder
        self._job = job
        self._puts = puts
        self._at: Any = job_folder.child(OWNER)
        who = f"process {os.getpid()} on {socket.gethostname()}"
        self._data = f"{secrets.token_hex(8)} {who}".encode()
        self._version: Version | None = None

    def take(self) -> None:
        """Take the job from every earlier driver.

        Raises JobTakenOver if another driver claims it at the same moment and wins, or
        CheckpointError.
        """
        until = time.monotonic() + _LEAVING_S
        for _ in range(_TRIES):
            before = self._puts.read(self._at.key, self._at.shown)
            while before is not None and before.data == _FREE and time.monotonic() < until:
                time.sleep(0.05)
                before = self._puts.read(self._at.key, self._at.shown)
            if before is None:
                made = self._puts.create(self._at.key, self._data, self._at.shown)
            else:
                key, shown = self._at.key, self._at.shown
                made = self._puts.replace(key, self._data, before.version, shown)
            if made is not None:
                self._version = made
                self._remove_former()
                return
            after = self._puts.read(self._at.key, self._at.shown)
            if after is not None and after.data != _FREE and after != before:
                raise self._taken_over(after.data, at_once=True)
        raise StorageUnusable(
            self._at.shown,
            f"the claim of this driver to job {self._job!r} does not stay there",
            "check that the storage keeps what is written to it",
        )

    def check(self) -> None:
        """Raises JobTakenOver if another driver has the job, CheckpointError if that is unknown."""
        found = self._puts.read(self._at.key, self._at.shown)
        if found is None:
            raise StorageUnusable(
                self._at.shown,
                "the claim of this driver is gone, and no other driver's is there: the storage "
                "was emptied, or another driver had the job and left",
                "start the job again",
            )
        if found.data != self._data:
            raise self._taken_over(found.data)

    def release(self) -> None:
        """The job is over."""
        version, self._version = self._version, None
        if version is None:
            return
        key, shown = self._at.key, self._at.shown
        if self._puts.replace(key, _FREE, version, shown) is not None:
            self._puts.remove(key, shown)

    def _remove_former(self) -> None:
        """Claims by listing, of a Headgate or a store without conditional puts."""
        for entry in self._folder.entries():
            if CLAIM.fullmatch(entry.name):
                self._folder.remove(entry.name)

    def _taken_over(self, data: bytes, *, at_once: bool = False) -> JobTakenOver:
        who = data.decode(errors="replace").partition(" ")[2][:200]
        return JobTakenOver(self._job, self._at.shown, who, at_once=at_once)
