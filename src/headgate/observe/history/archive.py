"""The archive of a job: what the REST API answers about it when it has ended, in one file.

The file is compressed text of one JSON object a line: first a header, for lists of archives, then
each path with its answer. Law: it has a bound; what does not fit is left out, the largest lists
last, and the archive says so. Reading takes no more memory than an archive may hold, whatever the
file is; one that is damaged, or is no archive, raises ArchiveDamaged.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from headgate import __version__
from headgate.base.errors import HeadgateError

FORMAT: Final = 1
SUFFIX: Final = ".archive.gz"
MOST_BYTES: Final = 64 * 1024 * 1024
"""Of all lines together, before they are compressed."""
LARGEST: Final = MOST_BYTES + MOST_BYTES // 4
"""A file that is larger, or holds more, is not read."""
MOST_PATHS: Final = 50_000
HEADER_BYTES: Final = 64 * 1024
"""The header is within so many bytes of the file, and has no more itself."""
MOST_FIELDS: Final = 100
"""Of a job, as lists of jobs show it."""
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
    """Of the Headgate that has written it."""
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
    """Of the file that begins with these bytes; raises ArchiveDamaged."""
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
