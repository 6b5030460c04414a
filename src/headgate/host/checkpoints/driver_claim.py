"""Which driver owns a job: each puts a numbered claim into the job's folder, the highest wins.

Law: in every listing exactly one claim is the highest, so of drivers that claim a job at the same
moment exactly one keeps it; nobody removes a claim above its own. A driver checks its claim once
more after it has written a checkpoint and before it reports it; a successor claims before it lists
checkpoints. So either the first knows that it was superseded, or the second sees what was written.
A claim that is gone while there is no other says nothing about other drivers: the storage is away,
or was emptied.
"""

import os
import re
import secrets
import socket
from typing import Final

from headgate.base.errors import CheckpointError, CheckpointMissing, JobTakenOver, StorageUnusable
from headgate.host.checkpoints.folder import Folder

CLAIM: Final = re.compile(r"owner-(\d{8,20})-([0-9a-f]{16})")
_FORMER: Final = "driver-"
"""The prefix of claims when their absence alone was the sign of a successor."""
_TRIES: Final = 20
"""A driver that leaves may remove the folder while the next one enters it."""


class DriverClaim:
    """The claim of one driver to one job; any thread may use it."""

    def __init__(self, job_folder: Folder, job: str) -> None:
        self._folder = job_folder
        self._job = job
        self._token = secrets.token_hex(8)
        self._name = ""

    def take(self) -> None:
        """Take the job from every earlier driver.

        Raises JobTakenOver if another driver claims it at the same moment and wins, or
        CheckpointError.
        """
        for _ in range(_TRIES):
            try:
                if self._try_to_take():
                    return
            except CheckpointMissing:
                continue  # an earlier driver has just removed the folder
        raise StorageUnusable(
            self._folder.shown,
            f"the claim of this driver to job {self._job!r} does not stay there",
            "check that the storage keeps what is written to it",
        )

    def check(self) -> None:
        """Raises JobTakenOver if another driver has the job, CheckpointError if that is unknown."""
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
        """The job is over; its folder goes if it is empty."""
        self._folder.remove(self._name)
        self._folder.remove_if_empty()

    def _try_to_take(self) -> bool:
        """False: the claim vanished at once, with the whole folder."""
        self._folder.make()
        before = self._claims()
        number = _rank(before[-1])[0] + 1 if before else 1
        self._name = f"owner-{number:08}-{self._token}"
        self._folder.put(self._name, f"process {os.getpid()} on {socket.gethostname()}".encode())
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
