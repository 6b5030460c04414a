"""Reads and checks the pieces of a checkpoint, or a whole checkpoint.

Law: a piece that is returned has the length and the checksum that the metadata states; otherwise
CheckpointCorrupt or CheckpointMissing is raised, with the path of the file.
"""

import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from typing import Any, Final

from headgate.base.checkpoints import Metadata, Piece, pieces_of
from headgate.base.errors import CheckpointCorrupt, CheckpointError, CheckpointMissing
from headgate.host.checkpoints.folder import Entry, storage_errors
from headgate.host.checkpoints.location import CheckpointLocation, files_of
from headgate.host.files.private_files import private_opener

_CHUNK_BYTES: Final = 1024 * 1024
_OPEN_FILES: Final = 8


class PieceReader:
    """Reads pieces; keeps a few files open until ``close``. For one thread at a time."""

    def __init__(self, location: CheckpointLocation) -> None:
        self._location = location
        self._files: OrderedDict[str, Any] = OrderedDict()

    def read(self, piece: Piece) -> bytes:
        if not piece.path:
            _check(self._location.shown, piece, len(piece.inline), zlib.crc32(piece.inline))
            return piece.inline
        shown = self._location.show_file(piece.path)
        file = self._open(piece.path)
        _check_range(shown, piece, file)
        with storage_errors(shown):
            data = bytes(file.read_at(piece.length, piece.offset))
        _check(shown, piece, len(data), zlib.crc32(data), sha256(data) if piece.digest else None)
        return data

    def fetch(self, piece: Piece, path: str) -> None:
        """Copy a piece to a new local file; on an error the file stays half-written."""
        with storage_errors(path), open(path, "wb", opener=private_opener) as target:
            for chunk in self.chunks(piece):
                target.write(chunk)

    def check(self, piece: Piece, on_read: Callable[[int], None] = lambda count: None) -> None:
        """Read a piece and keep nothing; ``on_read`` gets the number of bytes as they are read."""
        for chunk in self.chunks(piece):
            on_read(len(chunk))

    def chunks(self, piece: Piece) -> Iterator[bytes]:
        """The bytes of a piece; the check comes after the last chunk."""
        if not piece.path:
            yield self.read(piece)
            return
        shown = self._location.show_file(piece.path)
        file = self._open(piece.path)
        _check_range(shown, piece, file)
        crc = done = 0
        digest = sha256() if piece.digest else None
        while done < piece.length:
            with storage_errors(shown):
                size = min(_CHUNK_BYTES, piece.length - done)
                chunk = bytes(file.read_at(size, piece.offset + done))
            if not chunk:
                break
            crc = zlib.crc32(chunk, crc)
            if digest is not None:
                digest.update(chunk)
            done += len(chunk)
            yield chunk
        _check(shown, piece, done, crc, digest)

    def close(self) -> None:
        """Idempotent."""
        while self._files:
            with suppress(OSError):
                self._files.popitem()[1].close()

    def __enter__(self) -> "PieceReader":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _open(self, path: str) -> Any:
        file = self._files.get(path)
        if file is None:
            folder, name = self._location.locate(path)
            file = self._files[path] = folder.open(name)
            if len(self._files) > _OPEN_FILES:
                with suppress(OSError):
                    self._files.popitem(last=False)[1].close()
        return file


@dataclass(frozen=True, slots=True)
class Verification:
    """What a check has found; no problem: everything is as it was written."""

    problems: tuple[str, ...]
    files: int
    state_bytes: int

    @property
    def is_whole(self) -> bool:
        return not self.problems


def verify(
    location: CheckpointLocation,
    metadata: Metadata,
    *,
    deep: bool = True,
    on_read: Callable[[int], None] = lambda count: None,
) -> Verification:
    """Look for the files that the metadata names; if ``deep``, read every byte of them.

    ``on_read`` gets the number of bytes as they are read.
    """
    missing = missing_files(location, metadata)
    problems = [str(error) for error in missing.values()]
    if deep:
        pieces = {piece for task in metadata.tasks for piece in pieces_of(task)}
        with PieceReader(location) as reader:
            for piece in sorted(pieces, key=lambda piece: (piece.path, piece.offset)):
                if piece.path in missing:
                    continue
                try:
                    reader.check(piece, on_read)
                except CheckpointError as error:
                    problems.append(str(error))
    return Verification(tuple(problems), len(files_of(metadata)), metadata.state_bytes)


def missing_files(location: CheckpointLocation, metadata: Metadata) -> dict[str, CheckpointError]:
    """Errors, by path, of files that are missing, have another length or cannot be its own.

    A listing shows that: a file is as long as the pieces in it.
    """
    errors: dict[str, CheckpointError] = {}
    known: dict[str, dict[str, Entry]] = {}
    for path, end in files_of(metadata).items():
        try:
            folder, name = location.locate(path)
            if folder.path not in known:
                known[folder.path] = {entry.name: entry for entry in folder.entries()}
        except CheckpointCorrupt as error:
            errors[path] = error
            continue
        entry = known[folder.path].get(name)
        size = 0 if entry is None else entry.size
        if entry is None:
            errors[path] = CheckpointMissing(
                folder.at(name), "is not there", "restore from another checkpoint"
            )
        elif entry.is_folder or entry.is_strange:
            errors[path] = CheckpointCorrupt(folder.at(name), "is no file, but a link or a folder")
        elif size != end:  # a task's pieces follow one another, and nothing follows them
            what = "is cut" if size < end else "was appended to"
            errors[path] = CheckpointCorrupt(
                folder.at(name), f"{what}: it has {size} bytes instead of {end}"
            )
    return errors


def _check_range(shown: str, piece: Piece, file: Any) -> None:
    """Before memory is allocated: numbers in damaged metadata can be anything."""
    with storage_errors(shown):
        size = file.size()
    where = f"{piece.length} bytes from {piece.offset} on"
    if piece.offset < 0 or piece.length < 0:
        raise CheckpointCorrupt(shown, f"cannot have {where}")
    if piece.offset + piece.length > size:
        there = max(0, size - piece.offset)
        raise CheckpointCorrupt(shown, f"is cut: of the {where} only {there} are there")


def _check(shown: str, piece: Piece, length: int, crc: int, digest: Any = None) -> None:
    where = f"the {piece.length} bytes from {piece.offset} on"
    if length != piece.length:
        raise CheckpointCorrupt(shown, f"is cut: of {where} only {length} are there")
    if crc != piece.crc:
        raise CheckpointCorrupt(shown, f"was changed: the checksum of {where} is wrong")
    if digest is not None and not compare_digest(digest.digest(), piece.digest):
        raise CheckpointCorrupt(shown, f"was changed: {where} are not those that were signed")
