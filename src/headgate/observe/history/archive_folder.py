"""A folder of archives: written once by drivers, listed and read again and again by a server.

New archives appear and others go while the server runs. Law: memory is bounded: headers of the
newest ``MOST_LISTED`` archives, and ``LOADED`` archives whole; a file that cannot be read is
reported once and passed over, and harms no other.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import quote

from headgate.base.errors import HeadgateError
from headgate.observe.history.archive import (
    CHUNK_BYTES,
    HEADER_BYTES,
    LARGEST,
    SUFFIX,
    ArchiveDamaged,
    ArchiveHeader,
    decode_archive,
    decode_header,
)

log = logging.getLogger(__name__)

MOST_LISTED: Final = 10_000
LOADED: Final = 4
FRESH_S: Final = 1.0
"""The folder is listed again when its list is older."""


class FileEntry(Protocol):
    """A name in a folder."""

    @property
    def name(self) -> str: ...
    @property
    def is_folder(self) -> bool: ...
    @property
    def size(self) -> int: ...
    @property
    def modified_ms(self) -> int: ...


class FilesFolder(Protocol):
    """Where archives are: local, or on another file system. Methods raise HeadgateError."""

    @property
    def shown(self) -> str: ...
    def make(self) -> None: ...
    def put(self, name: str, data: bytes, /) -> bool: ...
    def entries(self) -> Sequence[FileEntry]: ...
    def open(self, name: str) -> Any: ...


def write_archive(folder: FilesFolder, job_id: str, written_at_ms: int, data: bytes) -> str:
    """Under a name of its own; returns the name."""
    folder.make()
    name = f"{quote(job_id, safe='')[:100]}-{written_at_ms}{SUFFIX}"
    if not folder.put(name, data):
        raise ArchiveDamaged(name, "there is one of that name already")
    return name


@dataclass(frozen=True, slots=True)
class ListedArchive:
    """A file, and what its header says."""

    key: str
    """The job's id; of an older archive of the same job, with the time of its end."""
    name: str
    header: ArchiveHeader


class ArchiveList:
    """The archives of a folder; any thread may call any method."""

    def __init__(self, folder: FilesFolder) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._headers: dict[tuple[str, int, int], ArchiveHeader | None] = {}  # None: damaged
        self._listed: dict[str, ListedArchive] = {}
        self._listed_at = float("-inf")
        self._loaded: OrderedDict[str, dict[str, bytes]] = OrderedDict()  # by file
        self._problem = ""

    def archives(self) -> list[ListedArchive]:
        """The newest first."""
        with self._lock:
            self._refresh()
            return list(self._listed.values())

    def find(self, key: str) -> ListedArchive | None:
        with self._lock:
            self._refresh()
            return self._listed.get(key)

    def answers(self, archive: ListedArchive) -> dict[str, bytes]:
        """By path; raises HeadgateError."""
        with self._lock:
            if archive.name in self._loaded:
                self._loaded.move_to_end(archive.name)
                return self._loaded[archive.name]
            with self._folder.open(archive.name) as file:
                if file.size() > LARGEST:
                    raise ArchiveDamaged(archive.name, "it is too large")
                answers = decode_archive(archive.name, _pieces(file))
            self._loaded[archive.name] = answers
            while len(self._loaded) > LOADED:
                self._loaded.popitem(last=False)
            return answers

    def _refresh(self) -> None:
        if time.monotonic() - self._listed_at < FRESH_S:
            return
        try:
            found = [entry for entry in self._folder.entries() if entry.name.endswith(SUFFIX)]
        except HeadgateError as error:
            if self._problem != str(error):
                log.warning("%s; what was seen last stays", error)
            self._problem = str(error)
            return
        finally:
            self._listed_at = time.monotonic()
        self._problem = ""
        newest = sorted(found, key=lambda entry: (-entry.modified_ms, entry.name))[:MOST_LISTED]
        headers = {}
        for entry in newest:
            mark = (entry.name, entry.size, entry.modified_ms)
            headers[mark] = self._headers[mark] if mark in self._headers else self._header(entry)
        self._headers = headers
        self._listed = _by_key(
            [(mark[0], header) for mark, header in headers.items() if header is not None]
        )
        names = {archive.name for archive in self._listed.values()}
        for name in [name for name in self._loaded if name not in names]:
            del self._loaded[name]

    def _header(self, entry: FileEntry) -> ArchiveHeader | None:
        try:
            if entry.is_folder:
                raise ArchiveDamaged(entry.name, "it is a folder")
            with self._folder.open(entry.name) as file:
                return decode_header(entry.name, bytes(file.read_at(HEADER_BYTES, 0)))
        except (HeadgateError, OSError) as error:
            log.warning("%s; it is passed over", error)
            return None


def _pieces(file: Any) -> Iterator[bytes]:
    at = 0
    while piece := bytes(file.read_at(CHUNK_BYTES, at)):
        yield piece
        at += len(piece)


def _by_key(found: list[tuple[str, ArchiveHeader]]) -> dict[str, ListedArchive]:
    listed: dict[str, ListedArchive] = {}
    for name, header in sorted(found, key=lambda pair: -pair[1].written_at_ms):
        key = str(header.job.get("jid", name))
        if key in listed:
            key = f"{key}@{header.written_at_ms}"
        listed[key] = ListedArchive(key, name, header)
    return listed
