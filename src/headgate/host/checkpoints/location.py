"""Where a checkpoint or savepoint is: its own folder, and the one whose files it shares.

A checkpoint is ``<dir>/<job>/chk-<id>`` with shared files in ``<dir>/<job>/shared``; a savepoint is
a folder that holds everything. Law: paths in metadata are relative, so that folders can be moved,
and lead nowhere but to these two folders.
"""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from headgate.base.checkpoints import CheckpointKind, Metadata, pieces_of
from headgate.base.errors import CheckpointCorrupt, CheckpointMissing, SettingsInvalid
from headgate.base.recovery_settings import SAVEPOINT_FOLDER
from headgate.host.checkpoints.folder import Folder, open_folder
from headgate.host.checkpoints.metadata import METADATA_FILE, CheckpointKey, decode_metadata

SHARED: Final = "shared"
_CHECKPOINT: Final = "chk-"
_LONGEST_NAME: Final = 255
_JOB_CHARS: Final = 6
"""How much of a job's id is in the names of its savepoints."""


@dataclass(frozen=True, slots=True)
class CheckpointLocation:
    """Where a checkpoint is, or will be."""

    own: Folder
    shared: Folder
    own_prefix: str
    """Precedes the names of own files in paths: the folder's original name."""
    shared_prefix: str

    @property
    def shown(self) -> str:
        return self.own.shown

    def locate(self, path: str) -> tuple[Folder, str]:
        """The folder and name of a file that a piece names; raises CheckpointCorrupt."""
        prefix, _, name = path.rpartition("/")
        prefix = f"{prefix}/" if prefix else ""
        if name not in ("", ".", "..") and _can_be_a_name(name):
            if prefix == self.own_prefix:
                return self.own, name
            if prefix == self.shared_prefix:
                return self.shared, name
        raise CheckpointCorrupt(self.shown, f"names the file {path!r}, which cannot be its own")

    def show_file(self, path: str) -> str:
        """A file that a piece names, for messages."""
        folder, name = self.locate(path)
        return folder.at(name)

    def shared_files(self, paths: Iterable[str]) -> list[str]:
        """The paths, of those given, that other checkpoints may name, too."""
        prefix = self.shared_prefix
        return [path for path in paths if prefix and path.startswith(prefix)]

    def is_complete(self) -> bool:
        """Whether there is a metadata file, whatever it holds."""
        return self.own.has(METADATA_FILE)

    def read_metadata(self) -> Metadata:
        """Raises CheckpointMissing, CheckpointCorrupt or StorageUnusable."""
        data = self.own.read(METADATA_FILE)
        return decode_metadata(self.own.at(METADATA_FILE), data, self.own.signing)


def folder_of_job(storage: Folder, job: str) -> Folder:
    """The folder of a job's checkpoints; every job id has its own."""
    name = quote(job, safe=" ")
    return storage.child(name.replace(".", "%2E") if not name.strip(".") else name)


def checkpoint_location(job_folder: Folder, checkpoint: int) -> CheckpointLocation:
    return _in_job_folder(job_folder.child(f"{_CHECKPOINT}{checkpoint}"), checkpoint)


def checkpoint_number(name: str) -> int | None:
    """The checkpoint whose folder has this name."""
    digits = name.removeprefix(_CHECKPOINT)
    return int(digits) if digits != name and digits.isascii() and digits.isdecimal() else None


def savepoint_location(folder: Folder) -> CheckpointLocation:
    return CheckpointLocation(folder, folder, "", "")


def new_savepoint(where: str, job: str) -> CheckpointLocation:
    """An unused folder for a savepoint, below the one that a user names."""
    name = f"savepoint-{quote(job[:_JOB_CHARS], safe='')}-{secrets.token_hex(6)}"
    return savepoint_location(open_folder(where).child(name))


def prepare_savepoint(directory: str | None, default: str, job: str) -> str:
    """Make a folder for a savepoint of the job; returns its path or URI.

    It is below ``directory``, else below the ``default`` of the settings. This comes before any
    task hears of the savepoint, so that a wrong folder disturbs no job. Raises SettingsInvalid if
    there is no folder, StorageUnusable if nothing can be written there.
    """
    where = directory or default
    if not where:
        raise SettingsInvalid(
            SAVEPOINT_FOLDER,
            "is not set, and no folder was named for the savepoint; name one, or set it",
        )
    folder = new_savepoint(where, job).own
    folder.make()
    folder.probe()
    return folder.uri


def resolve(
    where: str, below: str = "", signing: CheckpointKey | None = None
) -> tuple[CheckpointLocation, Metadata]:
    """The checkpoint or savepoint that a user names by its folder or its metadata file.

    ``below``: the storage that the user has named, if it is in there. Raises CheckpointMissing,
    CheckpointCorrupt or StorageUnusable.
    """
    folder = open_folder(where, below, signing)
    if folder.name == METADATA_FILE:
        folder = folder.parent()
    found = folder.look()
    if found is not None and not found.is_folder:
        raise CheckpointMissing(
            folder.shown, "is no checkpoint but a file", "name the folder of a checkpoint"
        )
    try:
        return read_location(folder)
    except CheckpointMissing as error:
        raise _no_checkpoint(folder) from error


def read_location(folder: Folder) -> tuple[CheckpointLocation, Metadata]:
    """The checkpoint in this folder, by its metadata."""
    metadata = savepoint_location(folder).read_metadata()
    return known_location(folder, metadata.kind, metadata.checkpoint), metadata


def known_location(folder: Folder, kind: CheckpointKind, checkpoint: int) -> CheckpointLocation:
    """The checkpoint in this folder, of which this is known from its metadata."""
    match kind:
        case CheckpointKind.SAVEPOINT:
            return savepoint_location(folder)
        case CheckpointKind.CHECKPOINT:
            return _in_job_folder(folder, checkpoint)


def files_of(metadata: Metadata) -> Mapping[str, int]:
    """Every file that the metadata names, with its length."""
    ends: dict[str, int] = {}
    for task in metadata.tasks:
        for piece in pieces_of(task):
            if piece.path:
                ends[piece.path] = max(ends.get(piece.path, 0), piece.offset + piece.length)
    return ends


def _can_be_a_name(name: str) -> bool:
    encoded = name.encode(errors="replace")
    return "\0" not in name and len(encoded) <= _LONGEST_NAME and name.isprintable()


def _in_job_folder(folder: Folder, checkpoint: int) -> CheckpointLocation:
    shared = folder.parent().child(SHARED)
    return CheckpointLocation(folder, shared, f"{_CHECKPOINT}{checkpoint}/", f"{SHARED}/")


def _no_checkpoint(folder: Folder) -> CheckpointMissing:
    entries = folder.entries()
    below = [entry.name for entry in entries if entry.is_folder]
    if not entries:
        return CheckpointMissing(folder.shown, "there is nothing here", "give a checkpoint's path")
    if checkpoint_number(folder.name) is not None or not below:
        problem = f"is no complete checkpoint: it has no {METADATA_FILE}"
        return CheckpointMissing(folder.shown, problem, "name another one")
    named = ", ".join(below[-5:])
    return CheckpointMissing(
        folder.shown,
        f"is no checkpoint; below it are {named}",
        "name one, or list them with headgate checkpoints",
    )
