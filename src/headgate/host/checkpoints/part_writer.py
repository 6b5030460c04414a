"""What one task writes for one checkpoint: a file with its pieces, and files that are shared.

Law: a piece that was handed out is in the storage when ``close`` has returned, with the checksum it
says; a writer that fails or is given up leaves nothing. The first bytes of a task, up to a limit,
travel in the metadata instead: small tasks make no file. ``abort`` and ``abandon`` may be called by
any thread, the rest by one at a time.
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
"""What travels in the metadata for each task, unless set otherwise."""

_CHUNK_BYTES: Final = 1024 * 1024


class PartWriter:
    """Writes the part of one task; ends with ``close`` or ``abort``, or as a context."""

    def __init__(
        self,
        place: CheckpointLocation,
        task: str,
        inline_bytes: int = INLINE_BYTES,
        *,
        digests: bool = False,
    ) -> None:
        """``task`` is the beginning of the names of its files, see ``part_name``; ``digests``:
        whether pieces in files tell theirs, for a driver that signs them.
        """
        # Two runs of a job may write at once without knowing of each other.
        self._task = f"{task}-{secrets.token_hex(4)}"
        self._name = f"{self._task}.state"
        self._place = place
        self._digests = digests
        self._inline_left = inline_bytes
        self._stream: Any = None
        self._offset = 0
        self._shared_bytes = 0
        self._made: list[tuple[Folder, str]] = []
        self._lock = threading.Lock()
        self._abandoned = False
        self._closed = False

    @property
    def written_bytes(self) -> int:
        """In the task's own file."""
        return self._offset

    @property
    def shared_bytes(self) -> int:
        """In files that later checkpoints may name, too."""
        return self._shared_bytes

    def append(self, *parts: ByteLike) -> Piece:
        """One piece, of one or several parts; raises StorageUnusable, CheckpointAbandoned."""
        length = sum(map(_size, parts))
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
        path = f"{self._place.own_prefix}{self._name}"
        return Piece(path, start, length, crc, b"", _digest(parts) if self._digests else b"")

    def share(self, path: str) -> Piece:
        """The copy of a local file that never changes; later checkpoints may name the piece, too.

        They may do so when this checkpoint is complete, not before.
        """
        folder = self._place.shared
        name = f"{shared_beginning(self._place)}{self._task}-{len(self._made)}.file"
        with self._lock:
            self._check_open()
            try:
                folder.make()
                self._made.append((folder, name))
                length, crc, digest = self._copy(path, folder, name)
                self._shared_bytes += length
            except BaseException:
                self._discard()
                raise
        return Piece(f"{self._place.shared_prefix}{name}", 0, length, crc, b"", digest)

    def close(self) -> None:
        """Everything is in the storage now. Raises StorageUnusable; nothing is left then."""
        with self._lock:
            if self._closed:
                return
            self._check_open()
            try:
                if self._stream is not None:
                    with storage_errors(self._place.own.at(self._name)):
                        self._stream.close()
                    self._place.own.settle(self._name)
                    self._stream = None
            except BaseException:
                self._discard()
                raise
            self._closed = True

    def abandon(self) -> None:
        """Let the thread that writes stop soon, and do not wait for it; it calls ``abort`` then."""
        self._abandoned = True

    def abort(self) -> None:
        """Given up: nothing of it stays. After ``close`` too, unless the checkpoint is complete."""
        self._abandoned = True  # seen by the thread that copies, before it gives the lock
        with self._lock:
            if self._closed and self._made and self._place.is_complete():
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
            with suppress(CheckpointError):  # the first error is the one to tell
                self.abort()

    def _check_open(self) -> None:
        if self._abandoned:
            raise CheckpointAbandoned(self._place.own.at(self._name))
        assert not self._closed, "a piece after the end"

    def _write(self, parts: Iterable[ByteLike]) -> None:
        if self._stream is None:
            own = self._place.own
            own.make()
            self._made.append((own, self._name))
            self._stream = own.create(self._name)
        with storage_errors(self._place.own.at(self._name)):
            for part in parts:
                self._stream.write(part)

    def _copy(self, path: str, folder: Folder, name: str) -> tuple[int, int, bytes]:
        length = crc = 0
        digest = sha256() if self._digests else None
        with storage_errors(path):
            source = open(path, "rb", buffering=0)  # noqa: SIM115 - the next line closes it
        # Around the stream's own end, too, which tries once more to write.
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
            with suppress(OSError):  # a full disk says so again
                stream.close()
        made, self._made = self._made, []
        for folder, name in made:
            with suppress(CheckpointError):  # clean_abandoned finds it
                folder.remove(name)


def shared_beginning(place: CheckpointLocation) -> str:
    """How the names of shared files begin that came with this checkpoint; no other's do."""
    return place.own_prefix.replace("/", "-")


def part_name(vertex: int, subtask: int, attempt: int) -> str:
    """How the files of a task begin."""
    return f"t-{vertex}-{subtask}-{attempt}"


def _digest(parts: Iterable[ByteLike]) -> bytes:
    made = sha256()
    for part in parts:
        made.update(part)
    return made.digest()


def _size(data: ByteLike) -> int:
    return data.nbytes if isinstance(data, memoryview) else len(data)
