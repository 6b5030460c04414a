"""The folder of one stream between a job and Spark's queries: on this machine, or in a store.

Names are paths below the folder. Law: a file that was ``put`` or ``replaced`` is there whole or not
at all; on this machine it outlives a crash, and only its user can read it. ``put`` keeps what is
there; a store without conditional writes may replace it if two put the same name at the same
moment, so names that two may put must stand for the same content. I/O errors become PathUnusable.
"""

import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath
from typing import Any, Final

import pyarrow.fs as pa_fs

from headgate.base.errors import PathUnusable
from headgate.base.object_store import is_s3, open_s3
from headgate.base.redaction import plain_url, shown_cause
from headgate.connectors.paths import readable_path, settle_folder

HALF_MADE_S: Final = 3600.0
"""A file that is being made for longer than this is not made any more."""
_FILE_MODE = 0o600
_FOLDER_MODE = 0o700
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS})
_TEMPORARY: Final = re.compile(r"\..+-[0-9a-f]{8}")


class LogFolder:
    """Files of one stream."""

    def __init__(self, uri: str) -> None:
        self._system: Any = None
        """The file system of pyarrow; None: local files."""
        plain = readable_path(uri)
        if "://" not in plain:
            self.uri = self._path = os.path.abspath(plain)  # workers have other working folders
            return
        self.uri = uri
        with self._errors("", "be reached"):
            found = open_s3(uri) if is_s3(uri) else pa_fs.FileSystem.from_uri(uri)
        self._system, self._path = found[0], found[1].rstrip("/")

    def shown(self, name: str = "") -> str:
        """The path in messages."""
        where = plain_url(self.uri)
        return f"{where}/{name}" if name else where

    @property
    def is_local(self) -> bool:
        return self._system is None

    def below(self, name: str) -> "LogFolder":
        """The folder of this name in it."""
        if self.is_local:
            return LogFolder(f"{self.uri}/{name}")
        address, mark, options = self.uri.partition("?")
        return LogFolder(f"{address.rstrip('/')}/{name}{mark}{options}")

    def make(self, name: str = "") -> None:
        """A folder with all above it; it may exist."""
        if self._system is not None:
            return  # stores and Hadoop make them with the first file
        with self._errors(name, "be made"):
            os.makedirs(self._at(name), _FOLDER_MODE, exist_ok=True)

    def put(self, name: str, data: bytes) -> bool:
        """A small file; False: there is one of this name, which stays as it is."""
        with self._errors(name, "be written"):
            if self._system is not None:
                if self.has(name):
                    return False
                self._write_to_store(name, data)
                return True
            with self._temporary(name, data) as temporary:
                is_new = _linked(temporary, self._at(name))
            if is_new:
                settle_folder(os.path.dirname(self._at(name)))
        return is_new

    def replace(self, name: str, data: bytes) -> None:
        """A small file, in the place of one that may be there."""
        with self._errors(name, "be written"):
            if self._system is not None:
                self._write_to_store(name, data)
                return
            with self._temporary(name, data) as temporary:
                os.replace(temporary, self._at(name))
            settle_folder(os.path.dirname(self._at(name)))

    def read(self, name: str) -> bytes | None:
        """A small file; None: it is not there."""
        try:
            with self._errors(name, "be read"):
                if self._system is None:
                    with open(self._at(name), "rb") as file:
                        return file.read()
                with self._system.open_input_stream(self._at(name)) as stream:
                    return bytes(stream.read())
        except PathUnusable as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise

    def has(self, name: str) -> bool:
        if self._system is None:
            return os.path.exists(self._at(name))
        with self._errors(name, "be read"):
            info = self._system.get_file_info(self._at(name))
        return bool(info.type != pa_fs.FileType.NotFound)

    def sizes(self, name: str) -> dict[str, int]:
        """The files of a folder by name, with their lengths.

        Stores do not know empty folders; on this machine one that is not there is an error.
        """
        with self._errors(name, "be read"):
            if self._system is None:
                return _local_sizes(self._at(name))
            selector = pa_fs.FileSelector(self._at(name), allow_not_found=True)
            return {
                info.base_name: info.size or 0
                for info in self._system.get_file_info(selector)
                if info.type == pa_fs.FileType.File
            }

    @contextmanager
    def created(self, name: str) -> Iterator[Any]:
        """A new large file, to be written; durable after the block, gone if that raises."""
        with self._errors(name, "be written"):
            try:
                if self._system is not None:
                    with self._system.open_output_stream(self._at(name)) as stream:
                        yield stream
                    return
                with open(self._at(name), "xb", opener=_opened_private) as file:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                settle_folder(os.path.dirname(self._at(name)))
            except BaseException:
                self.remove(name)
                raise

    @contextmanager
    def opened(self, name: str) -> Iterator[Any]:
        """A file for random access; FileNotFoundError is the cause if it is not there."""
        with self._errors(name, "be read"):
            system = self._system or pa_fs.LocalFileSystem()
            with system.open_input_file(self._at(name)) as file:
                yield file

    def remove(self, name: str) -> None:
        """A file, if it is there and can be removed."""
        with suppress(OSError):
            if self._system is None:
                os.unlink(self._at(name))
            else:
                self._system.delete_file(self._at(name))

    def tidy(self, *folders: str) -> None:
        """Remove what processes that were killed have left half made, in these folders.

        It is old by the clock of the file system, which has just changed the folder itself: those
        of two hosts may differ by more. Stores have nothing half made.
        """
        if self._system is not None:
            return
        with self._errors("", "be read"):
            now_s = os.stat(self._path).st_mtime
            for folder in map(self._at, folders):
                for path in (f"{folder}/{name}" for name in os.listdir(folder)):
                    if _TEMPORARY.fullmatch(os.path.basename(path)):
                        with suppress(OSError):
                            if now_s - os.lstat(path).st_mtime > HALF_MADE_S:
                                os.unlink(path)

    def remove_all(self) -> None:
        """The folder with all that is in it, if it is there."""
        with self._errors("", "be removed"):
            if self._system is None:
                shutil.rmtree(self._path, ignore_errors=True)
            elif self.has(""):
                self._system.delete_dir(self._path)

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}" if name else self._path

    def _write_to_store(self, name: str, data: bytes) -> None:
        if self._system.type_name not in ("s3", "gcs", "abfs"):
            self._system.create_dir(str(PurePosixPath(self._at(name)).parent), recursive=True)
        with self._system.open_output_stream(self._at(name)) as stream:
            stream.write(data)

    @contextmanager
    def _temporary(self, name: str, data: bytes) -> Iterator[str]:
        """A durable file beside the one that is to be made; gone after the block."""
        folder, _, last = self._at(name).rpartition("/")
        path = f"{folder}/.{last}-{secrets.token_hex(4)}"
        try:
            with open(path, "xb", opener=_opened_private) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield path
        finally:
            with suppress(OSError):
                os.unlink(path)

    @contextmanager
    def _errors(self, name: str, what: str) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, ImportError) as error:
            reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
            raise PathUnusable(
                self.shown(name),
                f"cannot {what}: {reason}; the job, its workers and Spark's executors need to "
                f"reach this folder as the same user",
            ) from shown_cause(error)


def _linked(temporary: str, path: str) -> bool:
    """Give a file its name; False: there is one of this name already.

    File systems in a network may answer that it is there when it was made just now, and the answer
    got lost. Some know no second names: they are treated as a store without conditional writes.
    """
    try:
        os.link(temporary, path)
    except FileExistsError:
        return os.stat(temporary).st_nlink > 1
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.exists(path):
            return False
        os.replace(temporary, path)
    return True


def _local_sizes(folder: str) -> dict[str, int]:
    found: dict[str, int] = {}
    with os.scandir(folder) as entries:  # that it is gone must not look as if all were read
        for entry in entries:
            if not entry.name.startswith("."):  # what is being written
                with suppress(FileNotFoundError):
                    found[entry.name] = entry.stat(follow_symlinks=False).st_size
    return found


def _opened_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, _FILE_MODE)
