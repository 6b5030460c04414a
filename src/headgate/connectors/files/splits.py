"""Pieces of files: how a file is cut, and how a reader finds the file that it was cut from.

A file that is followed may be renamed (rotated) or replaced before its piece is read, so the piece
says which file it was: device and inode, where there are such, and a digest of its first and last
bytes. Law: the pieces of a file cover it without a gap or an overlap; a file of another content is
never taken for the one that was listed.
"""

import hashlib
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from headgate.base.errors import FileGone
from headgate.connectors.files.file_access import FileAccess, is_remote, printable
from headgate.functions.context import ConnectorContext

log = logging.getLogger(__name__)

DIGEST_BYTES: Final = 512
"""So many bytes at the beginning, and at the end, tell one file from another."""


@dataclass(frozen=True, slots=True)
class FileVersion:
    """What tells a file from another one that has taken its name."""

    inode: tuple[int, int] | None
    """Device and number; None: the file system has none."""
    length: int
    """The digest is of the first and the last bytes up to here."""
    digest: bytes


@dataclass(frozen=True, slots=True)
class FileSplit:
    """A piece of a file, in bytes; it owns the records that begin in it."""

    path: str
    start: int = 0
    end: int | None = None
    """None: the end of the file, wherever that is when it is read."""
    version: FileVersion | None = None
    """Which file it was; None: whichever is at the path."""


def cut(
    path: str, start: int, end: int | None, size: int, split_bytes: int | None
) -> Iterator[FileSplit]:
    """The pieces from ``start`` to ``end`` of a file of this size; None: one piece."""
    last = size if end is None else end
    if split_bytes is not None:
        # A small rest would cost a task more than it is worth.
        while last - start > split_bytes + split_bytes // 10:
            yield FileSplit(path, start, start + split_bytes)
            start += split_bytes
    yield FileSplit(path, start, end)


def as_known(split: FileSplit) -> "FileSplit | str":
    """A whole file is its path, as in earlier releases, whose checkpoints know it by that."""
    return split.path if split == FileSplit(split.path) else split


def digest_of(access: FileAccess, path: str, length: int) -> bytes | None:
    """The digest of the bytes up to ``length``; None: the file is shorter. Raises OSError."""
    head = min(length, DIGEST_BYTES)
    file = access.open_raw(path)
    try:
        parts = [file.read(head)]
        file.seek(length - head)
        parts.append(file.read(head))
    finally:
        file.close()
    if sum(map(len, parts)) < 2 * head:
        return None
    return hashlib.blake2b(b"".join(parts), digest_size=8).digest()


def find_split(access: FileAccess, split: FileSplit) -> str:
    """Where the file of a split is now; raises PathUnusable if it is not there any more."""
    version = split.version
    if version is None:
        return split.path
    for path in _places(split.path, version):
        try:
            if digest_of(access, path, version.length) == version.digest:
                return path
        except OSError:
            continue
    what = "is gone" if access.stat(split.path) is None else "was cut or replaced"
    raise FileGone(
        printable(split.path),
        f"{what} before its bytes {split.start} to {split.end or version.length} were read; keep "
        f"files until they are read, rotate them by renaming, or set skip_missing=True",
    )


def skip_missing_file(context: ConnectorContext, error: FileGone) -> None:
    """Count a file that is gone, and say so: its records are missing, and no error tells of it."""
    context.metrics.counter("files_missing").inc()
    log.warning("%s is not there any more; what was left of it was not read", error.path)


def _places(path: str, version: FileVersion) -> Iterator[str]:
    """Where a file may be; its folder, which may be large, is listed only if it was renamed."""
    yield path
    if version.inode is not None and not is_remote(path):
        renamed = inodes_in(os.path.dirname(path)).get(version.inode[1])
        if renamed is not None:
            yield renamed


def same_inode(before: tuple[int, int] | None, now: tuple[int, int] | None) -> bool:
    """Whether nothing speaks against it; some file systems have no inodes."""
    return before is None or now is None or before == now


def inodes_in(folder: str) -> dict[int, str]:
    """The paths of a folder's files by inode; none if it cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            return {entry.inode(): entry.path for entry in entries if entry.is_file()}
    except OSError:
        return {}
