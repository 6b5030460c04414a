"""Where a savepoint goes, settled before any task is told of it.

Law: a folder that nobody named, or that cannot be written, disturbs no job.
"""

from headgate.base.errors import SettingsInvalid
from headgate.base.recovery_settings import SAVEPOINT_FOLDER
from headgate.host.checkpoints.checkpoint_store import CheckpointStore
from headgate.host.checkpoints.location import new_savepoint


def prepare_savepoint(directory: str | None, default: str, job: str) -> str:
    """Make a folder of its own for a savepoint of the job; returns its path or URI.

    It stands below the directory that somebody names, else below the default of the settings.
    Raises SettingsInvalid if there is neither, StorageUnusable if nothing can be written there.
    """
    where = directory or default
    if not where:
        raise SettingsInvalid(
            SAVEPOINT_FOLDER,
            "is not set, and no folder was named for the savepoint; name one, or set it",
        )
    place = new_savepoint(where, job)
    place.own.make()
    CheckpointStore(place.own).probe()
    return place.own.uri
