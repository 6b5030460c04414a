"""What becomes of a job after an error: whether another attempt could end in another way.

The one place that says so. Law: an error that every attempt would meet is final and ends the job at
once with its reason; a consequence of trouble elsewhere never hides its cause; all others are tried
again as the restart strategy says.
"""

import errno
from collections.abc import Iterator
from typing import Final

from headgate.base import errors

CONSEQUENCES: Final = (
    errors.DriverLost,
    errors.PartitionNotFound,
    errors.PoolDestroyed,
    errors.ProducerFailed,
    errors.TaskCancelled,
    errors.TransportError,
)
"""Errors of a task that tell of trouble elsewhere."""

FINAL: Final = (
    errors.BackendMissing,
    errors.CheckpointsDamaged,
    errors.CodeUnloadable,
    errors.FunctionUnpicklable,
    errors.HttpRejected,
    ImportError,
    errors.InsufficientBuffers,
    errors.JobTakenOver,
    errors.OffsetsLost,
    errors.PartLost,
    errors.PlanInvalid,
    errors.RecordsLost,
    errors.RestoreRefused,
    errors.ServerUnfit,
    errors.SettingsInvalid,
    errors.SparkUnready,
    errors.StreamUnfit,
    errors.TableUnfit,
    errors.WrongVersion,
)
"""Errors that every other attempt would meet as well: a package is missing, memory is too small for
the plan, versions differ, the program does not fit its checkpoint or its settings; or what a
checkpoint has left outside is gone, was replaced or is refused: a part, a table, a slot, a note."""

DAMAGE: Final = (errors.CheckpointCorrupt,)
"""Errors of a task that has read other bytes than were written. One that finds nothing may be on a
host where the storage is away: what is truly gone is found when the next attempt is planned."""

OUTSIDE: Final = (
    errors.CheckpointMissing,
    ConnectionError,
    errors.DatabaseUnready,
    errors.KafkaUnready,
    errors.ServerUnreachable,
    errors.ServerUnready,
    errors.SlotsShort,
    errors.StateUnstorable,
    errors.StorageUnusable,
    errors.TableUnready,
    TimeoutError,
)
"""Errors of what the job depends on: it may be well again soon, whatever the record."""

_PASSING: Final = frozenset(
    {errno.EDQUOT, errno.EHOSTUNREACH, errno.EIO, errno.ENETUNREACH, errno.ENOSPC, errno.EROFS}
    | {errno.ESTALE}
)
"""What the system says of a disk or a network that may be well again soon."""

_DEEPEST: Final = 20


def is_consequence(error: BaseException) -> bool:
    """Whether it follows from trouble elsewhere, which explains it better."""
    return isinstance(error, CONSEQUENCES) and not is_final(error)


def is_final(error: BaseException) -> bool:
    """Whether the job must end: nothing gets better by another attempt."""
    return any(isinstance(cause, FINAL) for cause in _causes(error))


def is_damage(error: BaseException) -> bool:
    """Whether the checkpoint is to blame, and an older one may do."""
    return any(isinstance(cause, DAMAGE) for cause in _causes(error))


def is_outside(error: BaseException) -> bool:
    """Whether something outside of the job has failed, so that it may be tried for long."""
    return any(
        isinstance(cause, OUTSIDE) or (isinstance(cause, OSError) and cause.errno in _PASSING)
        for cause in _causes(error)
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """It, and what it was raised from, as far as somebody has said so."""
    cause: BaseException | None = error
    for _ in range(_DEEPEST):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__
