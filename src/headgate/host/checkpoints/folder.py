"""Folders of checkpoints, on any file system that pyarrow knows.

Law: a file that was ``put`` is there whole or not at all, and replaces no other; what was settled
outlives a crash of the machine, if the file system is local. Every error becomes StorageUnusable,
CheckpointMissing or CheckpointCorrupt, with the path as the user would write it. Local files are
accessible to the user alone (see ``private_files``).
"""

import errno
import os
import posixpath
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from headgate.base.elements import ByteLike
from headgate.base.errors import (
    CheckpointCorrupt,
    CheckpointError,
    CheckpointMissing,
    StorageUnusable,
)
from headgate.base.object_store import is_s3, open_s3, s3_problem
from headgate.base.redaction import shown_cause, without_secrets
from headgate.host.checkpoints.conditional_puts import ConditionalPuts, puts_of
from headgate.host.checkpoints.metadata import CheckpointKey
from headgate.host.files.private_files import LinkRefused, PrivateFiles, arrow_fs

BUFFER_BYTES: Final = 1024 * 1024
"""Smaller writes are gathered up to this size."""

FLAT: Final = frozenset({"abfs", "gcs", "s3"})
"""Object stores: no folder has to be made, and a file appears when it is closed."""

KNOWN: Final = "a path of this machine, or file://, hdfs://, s3://, gs:// or abfs://"

_CONDITIONAL: Final = "s3"
_PROBE: Final = ".headgate-probe"
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/)")
_NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


@dataclass(frozen=True, slots=True)
class Entry:
    """A name in a folder."""

    name: str
    is_folder: bool
    size: int
    modified_ms: int
    is_strange: bool = False
    """A symbolic link, or something else that is neither a file nor a folder."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that may not exist yet. Names are those of entries directly in it."""

    system: Any
    """A file system of pyarrow.fs, which has no types."""
    path: str
    """As the file system calls it."""
    uri: str
    """As a user may give it: a local path or a URI, which another process can open."""
    signing: CheckpointKey | None = field(default=None, compare=False)
    """The key for metadata in it, in a driver that has one."""

    @property
    def shown(self) -> str:
        return without_secrets(self.uri)

    @property
    def name(self) -> str:
        return posixpath.basename(self.path)

    @property
    def is_flat(self) -> bool:
        """Whether it is in an object store, where no empty folder exists."""
        return self.system.type_name in FLAT

    @property
    def puts(self) -> ConditionalPuts | None:
        """For puts on a condition, in S3; raises StorageUnusable if obstore is not installed."""
        if self.system.type_name != _CONDITIONAL:
            return None
        return puts_of(self.system, self.path.partition("/")[0], self.shown)

    @property
    def key(self) -> str:
        """In S3: the path within its bucket."""
        return self.path.partition("/")[2]

    def at(self, name: str) -> str:
        """A file's path in messages."""
        return self.child(name).shown

    def child(self, name: str) -> "Folder":
        path, uri = posixpath.join(self.path, name), _extended(self.uri, name)
        return Folder(self.system, path, uri, self.signing)

    def parent(self) -> "Folder":
        above = posixpath.dirname(self.path)
        system = self.system.rooted(above) if isinstance(self.system, PrivateFiles) else self.system
        return Folder(system, above, _shortened(self.uri), self.signing)

    def make(self) -> None:
        """With all above it; it may exist already."""
        if not self.is_flat:
            with storage_errors(self.shown):
                self.system.create_dir(self.path, recursive=True)

    def entries(self) -> list[Entry]:
        """Sorted by name; none if the folder does not exist."""
        with storage_errors(self.shown):
            selector = arrow_fs().FileSelector(self.path, allow_not_found=True)
            found = self.system.get_file_info(selector)
        return sorted(map(_entry, found), key=lambda entry: entry.name)

    def look(self) -> Entry | None:
        """The folder or file at its path, if there is one."""
        with storage_errors(self.shown):
            found = self.system.get_file_info(self.path)
        return None if found.type == arrow_fs().FileType.NotFound else _entry(found)

    def has(self, name: str) -> bool:
        """Whether there is a file of this name."""
        found = self.child(name).look()
        return found is not None and not found.is_folder

    def probe(self) -> None:
        """Raises StorageUnusable unless a file can be written and removed."""
        if (puts := self.puts) is not None:  # first: only answers to a put say why it is refused
            puts.create(self.child(_PROBE).key, b"", self.at(_PROBE))
        self.remove(_PROBE)
        self.put(_PROBE, b"")
        self.remove(_PROBE)

    def create(self, name: str) -> Any:
        """A stream to a new file; whoever opens it closes it."""
        with storage_errors(self.at(name)):
            return self.system.open_output_stream(self._in(name), buffer_size=BUFFER_BYTES)

    def open(self, name: str) -> Any:
        """A file for random access; whoever opens it closes it."""
        with storage_errors(self.at(name)):
            return self.system.open_input_file(self._in(name))

    def read(self, name: str) -> bytes:
        with self.open(name) as file, storage_errors(self.at(name)):
            return bytes(file.read())

    def settle(self, name: str = "") -> None:
        """Let a closed file, or the folder's own entries, outlive a crash of the machine.

        Only local files need that; other file systems do it when a file is closed.
        """
        if isinstance(self.system, PrivateFiles):
            with storage_errors(self.at(name) if name else self.shown):
                self.system.sync(self._in(name))

    def put(self, name: str, data: ByteLike) -> bool:
        """Write a whole file in one step; False: there is one already, which stays as it is."""
        if self.has(name):
            return False
        if (puts := self.puts) is not None:
            return puts.create(self.child(name).key, data, self.at(name)) is not None
        if self.is_flat:
            self._write(name, data)
            return True
        temporary = f"{name}.tmp-{secrets.token_hex(4)}"
        try:
            self._write(temporary, data)
            self.settle(temporary)
            if not self._give_name(temporary, name):
                return False
        finally:
            with suppress(CheckpointError):  # nobody knows its name
                self.remove(temporary)
        self.settle()
        self.parent().settle()
        return True

    def remove(self, name: str) -> None:
        """Delete a file, if it exists."""
        with suppress(CheckpointMissing), storage_errors(self.at(name)):
            self.system.delete_file(self._in(name))

    def remove_all(self) -> None:
        """Delete the folder with everything in it, if it exists."""
        with suppress(CheckpointMissing), storage_errors(self.shown):
            self.system.delete_dir(self.path)

    def remove_if_empty(self) -> None:
        """Delete the folder, unless it has entries or does not exist."""
        if self.is_flat:
            return
        if isinstance(self.system, PrivateFiles):  # atomic: another driver may enter it now
            with suppress(OSError):
                self.system.delete_empty_dir(self.path)
        elif not self.entries():
            self.remove_all()

    def _in(self, name: str) -> str:
        return posixpath.join(self.path, name) if name else self.path

    def _write(self, name: str, data: ByteLike) -> None:
        stream = self.create(name)
        try:
            with storage_errors(self.at(name)):
                stream.write(data)
                stream.close()
        except BaseException:
            with suppress(OSError):
                stream.close()
            with suppress(CheckpointError):
                self.remove(name)
            raise

    def _give_name(self, temporary: str, name: str) -> bool:
        with storage_errors(self.at(name)):
            if isinstance(self.system, PrivateFiles):
                try:
                    self.system.link(self._in(temporary), self._in(name))
                    return True
                except FileExistsError:
                    return False
                except OSError as error:  # a file system without hard links: rename instead
                    if error.errno not in _NO_LINKS:
                        raise
            if self.has(name):
                return False
            self.system.move(self._in(temporary), self._in(name))
        return True


def open_folder(where: str, below: str = "", signing: CheckpointKey | None = None) -> Folder:
    """The folder that a user names by a path or a URI; nothing is made or looked up there.

    ``below``: the folder that the user has named, if this one was found in it: symbolic links
    between the two are not followed. Raises StorageUnusable if no file system fits, or it cannot
    be reached.
    """
    shown = without_secrets(where)
    if not where.strip():
        raise StorageUnusable("''", "no folder is named", f"give {KNOWN}")
    if "\0" in where:
        raise StorageUnusable(repr(shown), "holds a NUL character", f"give {KNOWN}")
    if _SCHEME.match(where) is None:
        return _local(os.path.abspath(where), below, signing)
    try:
        system, path = open_s3(where) if is_s3(where) else arrow_fs().FileSystem.from_uri(where)
    except (ValueError, ImportError) as error:
        problem = _first_line(error)
        raise StorageUnusable(shown, problem, f"give {KNOWN}") from shown_cause(error)
    except OSError as error:
        advice = "check the address, and what its file system needs on every host"
        raise StorageUnusable(shown, _first_line(error), advice) from shown_cause(error)
    path = path.rstrip("/") or "/"
    if system.type_name == "local":
        return _local(path, below, signing)
    return Folder(system, path, _trimmed(where), signing)


def _local(path: str, below: str, signing: CheckpointKey | None) -> Folder:
    root = path
    if below:
        above = open_folder(below)
        is_inside = isinstance(above.system, PrivateFiles) and path.startswith(f"{above.path}/")
        root = above.path if is_inside else path
    return Folder(PrivateFiles(root), path, path, signing)


@contextmanager
def storage_errors(shown: str) -> Iterator[None]:
    """Raise errors of a file system as checkpoint errors, with the path and advice."""
    try:
        yield
    except FileNotFoundError as error:
        raise CheckpointMissing(shown, "is not there", "check the path") from error
    except UnicodeError as error:
        raise StorageUnusable(repr(shown), "is no text in UTF-8", "name another path") from error
    except LinkRefused as error:
        problem = f"is {error.strerror}, which is not followed"
        advice = "put what it leads to in its place, or name that folder itself"
        raise CheckpointCorrupt(shown, problem, advice) from error
    except ValueError as error:  # a NUL in a name, a stream that is closed
        raise StorageUnusable(repr(shown), _first_line(error), "name another path") from error
    except PermissionError as error:
        advice = "give the user of the job the right to read and write there"
        raise StorageUnusable(shown, _reason(error), advice) from error
    except (NotADirectoryError, FileExistsError) as error:
        advice = "name a folder, or a path where one can be made"
        raise StorageUnusable(shown, "a file stands where a folder must be", advice) from error
    except OSError as error:
        problem, advice = s3_problem(str(error))
        if problem:
            raise StorageUnusable(shown, problem, advice) from error
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        advice = (
            "make room there, or name another folder with execution.checkpointing.dir"
            if full
            else "check that the storage is there and can be written"
        )
        raise StorageUnusable(shown, _reason(error), advice) from error


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else _first_line(error)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0].rstrip(".") or type(error).__name__


def _entry(found: Any) -> Entry:
    changed_ms = (found.mtime_ns or 0) // 1_000_000
    is_folder = found.type == arrow_fs().FileType.Directory
    is_strange = found.type == arrow_fs().FileType.Unknown
    return Entry(found.base_name, is_folder, found.size or 0, changed_ms, is_strange)


def _extended(uri: str, name: str) -> str:
    """The URI of an entry; a query stays at the end."""
    if _SCHEME.match(uri) is None:
        return posixpath.join(uri, name)
    address, mark, options = uri.partition("?")
    return f"{address.rstrip('/')}/{quote(name)}{mark}{options}"


def _shortened(uri: str) -> str:
    if _SCHEME.match(uri) is None:
        return posixpath.dirname(uri)
    address, mark, options = uri.partition("?")
    return f"{address.rpartition('/')[0]}{mark}{options}"


def _trimmed(uri: str) -> str:
    address, mark, options = uri.partition("?")
    return f"{address.rstrip('/')}{mark}{options}"
