"""Writes one task's part of a checkpoint: a file with its pieces, and shared files.

Law: a piece that was returned is in the storage when ``close`` has returned, with the checksum it
states; a writer that fails or is aborted leaves nothing. The first bytes of a task, up to a limit,
travel in the metadata instead, so small tasks write no file. ``abort`` and ``abandon`` may be
called by any thread, the rest by one at a time.
"""

import secrets
import threading
import zlib
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from types import TracebackType
from typing import Any, Final

from headgate.base.checkpoints import Piece
from headgate.base.elements import ByteLike
from headgate.base.errors import CheckpointAbandoned, CheckpointError
from headgate.host.checkpoints.folder import Folder, storage_errors
from headgate.host.checkpoints.location import CheckpointLocation

INLINE_BYTES: Final = 20 * 1024
"""How much of each task travels in the metadata by default."""

_CHUNK_BYTES: Final = 1024 * 1024


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
        length = sum(memoryview(part).nbytes for part in parts)
        crc = 0
        for part in parts:
            crc = zlib.crc32(part, crc)
        with self._lock:
            self._check_open()
            if length <= self._inline_left:
                self._inline_left -= length
                return Piece("", 0, length, crc, b"".join(parts))
            try:
                self._write(parts)
            except BaseException:
                self._discard()
                raise
            start, self._offset = self._offset, self._offset + length
        path = f"{self._location.own_prefix}{self._name}"
        return Piece(path, start, length, crc, b"", _digest(parts) if self._digests else b"")

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
                length, crc, digest = self._copy(path, folder, name)
                self.shared_bytes += length
            except BaseException:
                self._discard()
                raise
        return Piece(f"{self._location.shared_prefix}{name}", 0, length, crc, b"", digest)

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

    def _copy(self, path: str, folder: Folder, name: str) -> tuple[int, int, bytes]:
        length = crc = 0
        digest = sha256() if self._digests else None
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
                crc = zlib.crc32(chunk, crc)
                if digest is not None:
                    digest.update(chunk)
                length += len(chunk)
        folder.settle(name)
        return length, crc, b"" if digest is None else digest.digest()

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


def _digest(parts: Iterable[ByteLike]) -> bytes:
    made = sha256()
    for part in parts:
        made.update(part)
    return made.digest()
