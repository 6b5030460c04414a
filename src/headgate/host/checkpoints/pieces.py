"""Pieces of a checkpoint: a task writes them into its file, whoever restores them checks them.

Law of ``PartWriter``: a piece that was returned is in the storage when ``close`` has returned, with
the checksum it states; a writer that fails or is aborted leaves nothing. The first bytes of a task,
up to a limit, travel in the metadata instead, so small tasks write no file.

Law of ``PieceReader``: a piece that is returned has the length and the checksum that the metadata
states; otherwise CheckpointCorrupt or CheckpointMissing is raised, with the path of the file.
"""

import secrets
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from types import TracebackType
from typing import Any, Final

from headgate.base.checkpoints import Metadata, Piece, pieces_of
from headgate.base.elements import ByteLike
from headgate.base.errors import (
    CheckpointAbandoned,
    CheckpointCorrupt,
    CheckpointError,
    CheckpointMissing,
)
from headgate.host.checkpoints.folder import Entry, Folder, storage_errors
from headgate.host.checkpoints.location import CheckpointLocation, files_of
from headgate.host.files.private_files import private_opener

INLINE_BYTES: Final = 20 * 1024
"""How much of each task travels in the metadata by default."""

_CHUNK_BYTES: Final = 1024 * 1024
_OPEN_FILES: Final = 8


class PartWriter:
    """Ends with ``close`` or ``abort``, or as a context manager."""

    def __init__(
        self,
        location: CheckpointLocation,
        task: str,
        inline_bytes: int = INLINE_BYTES,
        *,
        digests: bool = False,
    ) -> None:
        """``task`` begins the names of its files, see ``part_name``; ``digests``: whether pieces
        in files state theirs, for a driver that signs them.
        """
        # Two runs of a job may write at once without knowing of each other.
        self._task = f"{task}-{secrets.token_hex(4)}"
        self._name = f"{self._task}.state"
        self._location = location
        self._digests = digests
        self._inline_left = inline_bytes
        self._stream: Any = None
        self._offset = 0
        self.shared_bytes = 0
        """In files that later checkpoints may name, too."""
        self._made: list[tuple[Folder, str]] = []
        self._lock = threading.Lock()
        self._abandoned = False
        self._closed = False

    def append(self, *parts: ByteLike) -> Piece:
        """Write the parts as one piece; raises StorageUnusable or CheckpointAbandoned."""
        sums = _Sums(self._digests)
        for part in parts:
            sums.add(part)
        length = sums.length
        with self._lock:
            self._check_open()
            if length <= self._inline_left:
                self._inline_left -= length
                return Piece("", 0, length, sums.crc, b"".join(parts))
            try:
                self._write(parts)
            except BaseException:
                self._discard()
                raise
            start, self._offset = self._offset, self._offset + length
        path = f"{self._location.own_prefix}{self._name}"
        return Piece(path, start, length, sums.crc, b"", sums.digest)

    def share(self, path: str) -> Piece:
        """Copy a local file that never changes.

        Later checkpoints may name the piece, too, once this checkpoint is complete.
        """
        folder = self._location.shared
        name = f"{shared_beginning(self._location)}{self._task}-{len(self._made)}.file"
        with self._lock:
            self._check_open()
            try:
                folder.make()
                self._made.append((folder, name))
                sums = self._copy(path, folder, name)
                self.shared_bytes += sums.length
            except BaseException:
                self._discard()
                raise
        shared = f"{self._location.shared_prefix}{name}"
        return Piece(shared, 0, sums.length, sums.crc, b"", sums.digest)

    def close(self) -> None:
        """Finish writing: everything is in the storage then. Raises StorageUnusable."""
        with self._lock:
            if self._closed:
                return
            self._check_open()
            try:
                if self._stream is not None:
                    with storage_errors(self._location.own.at(self._name)):
                        self._stream.close()
                    self._location.own.settle(self._name)
                    self._stream = None
            except BaseException:
                self._discard()
                raise
            self._closed = True

    def abandon(self) -> None:
        """Let the writing thread stop soon, without waiting; it calls ``abort`` then."""
        self._abandoned = True

    def abort(self) -> None:
        """Remove everything; after ``close`` too, unless the checkpoint is complete."""
        self._abandoned = True  # a thread that copies sees it, and releases the lock
        with self._lock:
            if self._closed and self._made and self._location.is_complete():
                return
            self._discard()

    def __enter__(self) -> "PartWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            with suppress(CheckpointError):  # the first error is the one to report
                self.abort()

    def _check_open(self) -> None:
        if self._abandoned:
            raise CheckpointAbandoned(self._location.own.at(self._name))
        assert not self._closed, "a piece after the end"

    def _write(self, parts: Iterable[ByteLike]) -> None:
        if self._stream is None:
            own = self._location.own
            own.make()
            self._made.append((own, self._name))
            self._stream = own.create(self._name)
        with storage_errors(self._location.own.at(self._name)):
            for part in parts:
                self._stream.write(part)

    def _copy(self, path: str, folder: Folder, name: str) -> "_Sums":
        sums = _Sums(self._digests)
        with storage_errors(path):
            source = open(path, "rb", buffering=0)  # noqa: SIM115 - the next line closes it
        # Around the stream's own close, too, which writes what is buffered.
        with source, storage_errors(folder.at(name)), folder.create(name) as target:
            while True:
                with storage_errors(path):
                    chunk = source.read(_CHUNK_BYTES)
                if not chunk:
                    break
                if self._abandoned:
                    raise CheckpointAbandoned(folder.at(name))
                target.write(chunk)
                sums.add(chunk)
        folder.settle(name)
        return sums

    def _discard(self) -> None:
        self._abandoned = True
        stream, self._stream = self._stream, None
        if stream is not None:
            with suppress(OSError):  # a full disk fails again
                stream.close()
        made, self._made = self._made, []
        for folder, name in made:
            with suppress(CheckpointError):  # clean_abandoned finds it
                folder.remove(name)


def shared_beginning(location: CheckpointLocation) -> str:
    """The prefix of shared files that this checkpoint brought, and no other."""
    return location.own_prefix.replace("/", "-")


def part_name(vertex: int, subtask: int, attempt: int) -> str:
    """The beginning of the names of a task's files."""
    return f"t-{vertex}-{subtask}-{attempt}"


class _Sums:
    """Length, checksum and digest of bytes, as far as they have come."""

    def __init__(self, digests: bool) -> None:
        self.length = 0
        self.crc = 0
        self._digest = sha256() if digests else None

    def add(self, data: ByteLike) -> None:
        self.length += memoryview(data).nbytes
        self.crc = zlib.crc32(data, self.crc)
        if self._digest is not None:
            self._digest.update(data)

    @property
    def digest(self) -> bytes:
        """Empty if none was wanted."""
        return b"" if self._digest is None else self._digest.digest()


class PieceReader:
    """Reads pieces; keeps a few files open until ``close``. For one thread at a time."""

    def __init__(self, location: CheckpointLocation) -> None:
        self._location = location
        self._files: OrderedDict[str, Any] = OrderedDict()

    def read(self, piece: Piece) -> bytes:
        if not piece.path:
            _check(self._location.shown, piece, piece.inline)
            return piece.inline
        shown = self._location.show_file(piece.path)
        file = self._open(piece.path)
        _check_range(shown, piece, file)
        with storage_errors(shown):
            data = bytes(file.read_at(piece.length, piece.offset))
        _check(shown, piece, data)
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
        sums = _Sums(bool(piece.digest))
        while sums.length < piece.length:
            with storage_errors(shown):
                size = min(_CHUNK_BYTES, piece.length - sums.length)
                chunk = bytes(file.read_at(size, piece.offset + sums.length))
            if not chunk:
                break
            sums.add(chunk)
            yield chunk
        _check_sums(shown, piece, sums)

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


def _check(shown: str, piece: Piece, data: bytes) -> None:
    sums = _Sums(bool(piece.digest and piece.path))
    sums.add(data)
    _check_sums(shown, piece, sums)


def _check_sums(shown: str, piece: Piece, sums: _Sums) -> None:
    where = f"the {piece.length} bytes from {piece.offset} on"
    if sums.length != piece.length:
        raise CheckpointCorrupt(shown, f"is cut: of {where} only {sums.length} are there")
    if sums.crc != piece.crc:
        raise CheckpointCorrupt(shown, f"was changed: the checksum of {where} is wrong")
    if sums.digest and not compare_digest(sums.digest, piece.digest):
        raise CheckpointCorrupt(shown, f"was changed: {where} are not those that were signed")
