"""Which driver owns a job: each claims it, and exactly one of those that claim it at once keeps it.

``DriverClaim`` puts a numbered file into the job's folder; the highest number wins, and nobody
removes a claim above its own. ``ObjectClaim``, in S3, creates the object ``owner`` or replaces the
version that it has read; a driver that leaves first empties it, and successors wait until an empty
one is gone. Law of both: a driver checks its claim once more after it has written a checkpoint and
before it reports it; a successor claims before it lists checkpoints. So either the first knows that
it was superseded, or the second sees what was written. A claim that is gone while there is no other
says nothing about other drivers: the storage is away, or was emptied.
"""

import logging
import os
import re
import secrets
import socket
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Final

from headgate.base.errors import CheckpointError, CheckpointMissing, JobTakenOver, StorageUnusable
from headgate.host.checkpoints.conditional_puts import ConditionalPuts, Version
from headgate.host.checkpoints.folder import Folder

CLAIM: Final = re.compile(r"owner-(\d{8,20})-([0-9a-f]{16})")
_FORMER: Final = "driver-"
"""The prefix of claims when their absence alone was the sign of a successor."""
_TRIES: Final = 20
"""A driver that leaves may remove the folder while the next one enters it."""
log = logging.getLogger(__name__)

OWNER: Final = "owner"
_FREE: Final = b"free"
_LEAVING_S: Final = 5.0
"""How long a driver may take to delete its claim after it was emptied."""


class Claim(ABC):
    """The claim of one driver to one job; any thread may use it."""

    def __init__(self, job_folder: Folder, job: str) -> None:
        self._folder = job_folder
        self._job = job
        self._owner = f"process {os.getpid()} on {socket.gethostname()}"
        """This driver, as people read it in errors."""

    @abstractmethod
    def take(self) -> None:
        """Take the job from every earlier driver.

        Raises JobTakenOver if another driver claims it at the same moment and wins, or
        CheckpointError.
        """

    @abstractmethod
    def check(self) -> None:
        """Raises JobTakenOver if another driver has the job, CheckpointError if that is unknown."""

    @abstractmethod
    def release(self) -> None:
        """The job is over: remove the claim, and with the last one the job's folder."""

    def _unstable(self, shown: str) -> StorageUnusable:
        return StorageUnusable(
            shown,
            f"the claim of this driver to job {self._job!r} does not stay there",
            "check that the storage keeps what is written to it",
        )


class DriverClaim(Claim):
    """A numbered file in the job's folder."""

    def __init__(self, job_folder: Folder, job: str) -> None:
        super().__init__(job_folder, job)
        self._token = secrets.token_hex(8)
        self._name = ""

    def take(self) -> None:
        for _ in range(_TRIES):
            try:
                if self._try_to_take():
                    return
            except CheckpointMissing:
                continue  # an earlier driver has just removed the folder
        raise self._unstable(self._folder.shown)

    def check(self) -> None:
        claims = self._claims()  # once: a storage may come back between two listings
        others = [name for name in claims if name != self._name]
        if others and (self._name not in claims or _rank(others[-1]) > _rank(self._name)):
            raise self._taken_over(others[-1])
        if self._name not in claims:
            raise StorageUnusable(
                self._folder.at(self._name),
                "the claim of this driver is gone, and no other driver's is there: the storage is "
                "away, or was emptied",
                "bring the folder back; if its files were deleted, start the job again",
            )

    def release(self) -> None:
        self._folder.remove(self._name)
        self._folder.remove_if_empty()

    def _try_to_take(self) -> bool:
        """False: the claim vanished at once, with the whole folder."""
        self._folder.make()
        before = self._claims()
        number = _rank(before[-1])[0] + 1 if before else 1
        self._name = f"owner-{number:08}-{self._token}"
        self._folder.put(self._name, self._owner.encode())
        claims = self._claims()
        if not claims:
            return False
        if claims[-1] != self._name:  # it may have removed this one already
            self._folder.remove(self._name)
            raise self._taken_over(claims[-1], at_once=True)
        for name in claims[:-1]:
            self._folder.remove(name)
        for entry in self._folder.entries():
            if entry.name.startswith(_FORMER):
                self._folder.remove(entry.name)
        return True

    def _claims(self) -> list[str]:
        """The claims of all drivers, the highest last."""
        names = [entry.name for entry in self._folder.entries() if not entry.is_folder]
        return sorted((name for name in names if CLAIM.fullmatch(name)), key=_rank)

    def _taken_over(self, claim: str, *, at_once: bool = False) -> JobTakenOver:
        try:
            who = self._folder.read(claim).decode(errors="replace")[:200]
        except CheckpointError:
            who = ""
        return JobTakenOver(self._job, self._folder.at(claim), who, at_once=at_once)


def _rank(name: str) -> tuple[int, str]:
    """The number decides, and between equal ones the token."""
    found = CLAIM.fullmatch(name)
    return (int(found[1]), found[2]) if found else (0, "")


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


class ObjectClaim(Claim):
    """The object ``owner`` in the job's folder, in S3."""

    def __init__(self, job_folder: Folder, job: str, puts: ConditionalPuts) -> None:
        super().__init__(job_folder, job)
        self._puts = puts
        self._at = job_folder.child(OWNER)
        self._data = f"{secrets.token_hex(8)} {self._owner}".encode()
        self._version: Version | None = None

    def take(self) -> None:
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
        raise self._unstable(self._at.shown)

    def check(self) -> None:
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
