"""The archive of a job: what the REST API answers about it when it has ended, in one file.

The file is compressed text of one JSON object a line: first a header, for lists of archives, then
each path with its answer. Law: it has a bound; what does not fit is left out, the largest lists
last, and the archive says so. A file that is damaged, or is no archive, raises ArchiveDamaged.
"""

import zlib
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from headgate import __version__
from headgate.base.errors import HeadgateError

FORMAT: Final = 1
SUFFIX: Final = ".archive.gz"
MOST_BYTES: Final = 64 * 1024 * 1024
"""Of all answers together, before they are compressed."""
LARGEST: Final = 4 * MOST_BYTES
"""A file that holds more is not read."""
HEADER_BYTES: Final = 64 * 1024
"""The header is within so many bytes of the file."""
_LEVEL: Final = 6
_GZIP: Final = 31  # zlib's window, with the header of gzip
_PARTS: Final = 2
_DAMAGE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


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
        if size + len(answer) > MOST_BYTES:
            left_out += 1
            continue
        size += len(answer)
        fitting.append(msgspec.json.encode(ArchivedPath(path, msgspec.Raw(answer))) + b"\n")
    header = ArchiveHeader(FORMAT, __version__, written_at_ms, job, left_out)
    # Two parts, so that the header can be read without the rest.
    return _packed([msgspec.json.encode(header) + b"\n"]) + _packed(fitting)


def decode_header(name: str, start: bytes) -> ArchiveHeader:
    """Of the file that begins with these bytes; raises ArchiveDamaged."""
    unpacking = zlib.decompressobj(_GZIP)
    try:
        text = unpacking.decompress(start, 16 * HEADER_BYTES)
    except zlib.error as error:
        raise ArchiveDamaged(name, str(error)) from error
    if not text.endswith(b"\n"):
        raise ArchiveDamaged(name, "its header is not whole")
    try:
        found = msgspec.json.decode(text, type=ArchiveHeader)
    except _DAMAGE as error:
        raise ArchiveDamaged(name, f"its header is none ({error})") from error
    if found.headgate_archive != FORMAT:
        problem = f"it has format {found.headgate_archive}, and this Headgate reads {FORMAT}"
        raise ArchiveDamaged(name, problem)
    return found


def decode_archive(name: str, data: bytes) -> dict[str, bytes]:
    """Answers by path; raises ArchiveDamaged."""
    lines = b"".join(_unpacked(name, data)).split(b"\n")
    if lines.pop():
        raise ArchiveDamaged(name, "its last line is not whole")
    try:
        paths = [msgspec.json.decode(line, type=ArchivedPath) for line in lines[1:]]
    except _DAMAGE as error:
        raise ArchiveDamaged(name, str(error)) from error
    return {found.path: bytes(found.json) for found in paths}


def _packed(lines: list[bytes]) -> bytes:
    packing = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    return b"".join([*map(packing.compress, lines), packing.flush()])


def _unpacked(name: str, data: bytes) -> Iterator[bytes]:
    """The parts one after the other, as gzip does it, up to a bound."""
    size = parts = 0
    while data:
        if parts == _PARTS:
            raise ArchiveDamaged(name, f"it has more than {_PARTS} parts")
        parts += 1
        unpacking = zlib.decompressobj(_GZIP)
        try:
            part = unpacking.decompress(data, LARGEST - size + 1)
        except zlib.error as error:
            raise ArchiveDamaged(name, str(error)) from error
        size += len(part)
        if size > LARGEST:
            raise ArchiveDamaged(name, f"it holds more than {LARGEST:,} bytes")
        if not unpacking.eof:
            raise ArchiveDamaged(name, "its end is missing")
        yield part
        data = unpacking.unused_data
