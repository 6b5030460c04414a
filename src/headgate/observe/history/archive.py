"""The archive of a job: what the REST API answers about it when it has ended, in one file.

The file is compressed text of one JSON object a line: first a header, for lists of archives, then
each path with its answer. Law: it has a bound; what does not fit is left out, the largest lists
last, and the archive says so. Reading takes no more memory than an archive may hold, whatever the
file is; one that is damaged, or is no archive, raises ArchiveDamaged.

A folder of archives is written once by drivers, and listed and read again and again by a server;
archives appear and go while the server runs. Law: it keeps the headers of the newest
``MOST_LISTED`` archives, and ``LOADED`` archives whole; a file that cannot be read is reported once
and passed over, and harms no other.
"""

import logging
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import quote

import msgspec

from headgate import __version__
from headgate.base.errors import HeadgateError

FORMAT: Final = 1
SUFFIX: Final = ".archive.gz"
MOST_BYTES: Final = 64 * 1024 * 1024
"""Size limit of all lines together, before they are compressed."""
LARGEST: Final = MOST_BYTES + MOST_BYTES // 4
"""A file that is larger, or holds more, is not read."""
MOST_PATHS: Final = 50_000
HEADER_BYTES: Final = 64 * 1024
"""The header is within so many bytes of the file, and has no more itself."""
MOST_FIELDS: Final = 100
"""Limit of the fields of a job in a header."""
CHUNK_BYTES: Final = 256 * 1024
_LEVEL: Final = 6
_GZIP: Final = 31  # zlib's window, with the header of gzip
_PARTS: Final = 2
_DAMAGE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError)


class ArchiveDamaged(HeadgateError):
    """A file that should be an archive cannot be read as one."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"the archive {name} cannot be read: {problem}")


class ArchiveHeader(msgspec.Struct, frozen=True, rename="kebab"):
    """The first line."""

    headgate_archive: int
    """The version of the format."""
    version: str
    """Version of the Headgate that has written it."""
    written_at_ms: int
    job: dict[str, object]
    """As ``GET /jobs/overview`` lists it."""
    left_out: int = 0
    """Answers that did not fit."""


class ArchivedPath(msgspec.Struct, frozen=True):
    """One of the other lines."""

    path: str
    """Below that of the job; empty: of the job itself."""
    json: msgspec.Raw


def encode_archive(
    job: dict[str, object], written_at_ms: int, answers: Mapping[str, bytes]
) -> bytes:
    """``answers``: by path, what matters most first."""
    fitting: list[bytes] = []
    size = left_out = 0
    for path, answer in answers.items():
        line = msgspec.json.encode(ArchivedPath(path, msgspec.Raw(answer))) + b"\n"
        if size + len(line) > MOST_BYTES or len(fitting) == MOST_PATHS:
            left_out += 1
            continue
        size += len(line)
        fitting.append(line)
    header = ArchiveHeader(FORMAT, __version__, written_at_ms, job, left_out)
    # Two parts, so that the header can be read without the rest.
    return _packed([msgspec.json.encode(header) + b"\n"]) + _packed(fitting)


def decode_header(name: str, start: bytes) -> ArchiveHeader:
    """The header of the file that begins with these bytes; raises ArchiveDamaged."""
    unpacking = zlib.decompressobj(_GZIP)
    try:
        text = unpacking.decompress(start, HEADER_BYTES)
    except zlib.error as error:
        raise ArchiveDamaged(name, str(error)) from error
    if not text.endswith(b"\n"):
        raise ArchiveDamaged(name, "its header is not whole, or too long")
    try:
        found = msgspec.json.decode(text, type=ArchiveHeader)
        msgspec.json.encode(found.job)  # what cannot be written would spoil the whole list
    except _DAMAGE as error:
        raise ArchiveDamaged(name, f"its header is none ({error})") from error
    if found.headgate_archive != FORMAT:
        problem = f"it has format {found.headgate_archive}, and this Headgate reads {FORMAT}"
        raise ArchiveDamaged(name, problem)
    inner = (value for value in found.job.values() if isinstance(value, dict))
    if any(len(fields) > MOST_FIELDS for fields in (found.job, *inner)):
        raise ArchiveDamaged(name, f"its header has more than {MOST_FIELDS} fields")
    return found


def decode_archive(name: str, data: Iterable[bytes]) -> dict[str, bytes]:
    """Answers by path, of a file that is read piece by piece; raises ArchiveDamaged."""
    answers: dict[str, bytes] = {}
    lines = _lines(name, _unpacked(name, data))
    next(lines, None)  # the header
    for line in lines:
        try:
            found = msgspec.json.decode(line, type=ArchivedPath)
        except _DAMAGE as error:
            raise ArchiveDamaged(name, f"a line of it is no answer ({error})") from error
        if len(answers) == MOST_PATHS:
            raise ArchiveDamaged(name, f"it has more than {MOST_PATHS:,} answers")
        if found.path in answers:
            raise ArchiveDamaged(name, f"it has two answers for the path {found.path[:100]!r}")
        answers[found.path] = bytes(found.json)
    return answers


def _lines(name: str, pieces: Iterable[bytes]) -> Iterator[bytes]:
    parts: list[bytes] = []  # of a line that is not whole yet
    for piece in pieces:
        start = 0
        while (end := piece.find(b"\n", start)) >= 0:
            yield b"".join([*parts, piece[start:end]])
            parts.clear()
            start = end + 1
        if start < len(piece):
            parts.append(piece[start:])
    if parts:
        raise ArchiveDamaged(name, "its last line is not whole")


def _packed(lines: list[bytes]) -> bytes:
    packing = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    return b"".join([*map(packing.compress, lines), packing.flush()])


def _unpacked(name: str, data: Iterable[bytes]) -> Iterator[bytes]:
    """The parts one after the other, as gzip does it, in short pieces and up to a bound."""
    size, parts, unpacking = 0, 0, None
    for read in data:
        left = read
        while left:
            if unpacking is None:
                if parts == _PARTS:
                    raise ArchiveDamaged(name, f"it has more than {_PARTS} parts")
                parts += 1
                unpacking = zlib.decompressobj(_GZIP)
            try:
                piece = unpacking.decompress(left, CHUNK_BYTES)
            except zlib.error as error:
                raise ArchiveDamaged(name, str(error)) from error
            size += len(piece)
            if size > LARGEST:
                raise ArchiveDamaged(name, f"it holds more than {LARGEST:,} bytes")
            yield piece
            left = unpacking.unused_data if unpacking.eof else unpacking.unconsumed_tail
            if unpacking.eof:
                unpacking = None
    if unpacking is not None:
        raise ArchiveDamaged(name, "its end is missing")


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
        """The answers in an archive by path; raises HeadgateError."""
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
            log.warning("%s; it is skipped", error)
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
