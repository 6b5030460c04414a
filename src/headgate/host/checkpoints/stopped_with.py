"""The savepoint that a job was to end with, noted in the job's folder beside its checkpoints.

It is written before sinks are told to commit, and goes with the job's checkpoints. Law: a driver
that comes after one which was lost meanwhile finds it, and does not go on from an older checkpoint.
"""

from dataclasses import dataclass
from typing import Final

from headgate.base.checkpoints import Metadata
from headgate.base.errors import CheckpointCorrupt, CheckpointError, CheckpointMissing
from headgate.host.checkpoints.folder import Folder
from headgate.host.checkpoints.location import CheckpointLocation, resolve
from headgate.host.checkpoints.signing import CheckpointKey

STOPPED: Final = "stopped-with-"


@dataclass(frozen=True, slots=True)
class StoppedWith:
    """Checkpoint ``number`` is a savepoint, which was written to the folder ``where``."""

    number: int
    where: str

    def resolve(
        self, job: str, signing: CheckpointKey | None = None
    ) -> tuple[CheckpointLocation, Metadata]:
        """The savepoint itself; raises CheckpointError if it is not what and where it was."""
        try:
            place, metadata = resolve(self.where, signing=signing)
        except CheckpointCorrupt:
            raise
        except CheckpointError as error:
            raise self._lacking(job, error.problem) from error
        if (metadata.job, metadata.checkpoint) != (job, self.number):
            raise self._lacking(job, "is another one now")
        return place, metadata

    def _lacking(self, job: str, problem: str) -> CheckpointMissing:
        return CheckpointMissing(
            self.where,
            f"job {job!r} was stopped with this savepoint, which {problem}",
            "say where it is with --from, or give the job another id to begin anew",
        )


def note_stop(jobs: Folder, number: int, savepoint: Folder) -> None:
    """Before anybody is told that it is complete. Raises StorageUnusable."""
    jobs.make()
    # Without a password: then it cannot be opened again, and whoever starts the job has to name it.
    jobs.put(_name(number), savepoint.shown.encode())


def forget_stop(jobs: Folder, number: int) -> None:
    """It came to nothing; raises StorageUnusable."""
    jobs.remove(_name(number))


def has_stop(jobs: Folder, number: int) -> bool:
    return jobs.has(_name(number))


def forget_stops(jobs: Folder) -> None:
    """The job is over, and its checkpoints are gone."""
    for number in _numbers(jobs):
        forget_stop(jobs, number)


def find_stop(jobs: Folder) -> StoppedWith | None:
    """The newest one; raises StorageUnusable."""
    number = max(_numbers(jobs), default=None)
    if number is None:
        return None
    where = jobs.read(_name(number))
    try:
        return StoppedWith(number, where.decode())
    except UnicodeDecodeError as error:
        raise CheckpointCorrupt(jobs.at(_name(number)), "is no path in UTF-8") from error


def _name(number: int) -> str:
    return f"{STOPPED}{number}"


def _numbers(jobs: Folder) -> list[int]:
    ends = [one.name.removeprefix(STOPPED) for one in jobs.entries() if _is_one(one.name)]
    return [int(end) for end in ends]


def _is_one(name: str) -> bool:
    end = name.removeprefix(STOPPED)
    return end != name and end.isascii() and end.isdecimal()
