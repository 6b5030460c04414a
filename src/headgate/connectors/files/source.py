"""Text files as a source of lines: one split per file; the position is an offset in bytes.

Paths name files, folders (read recursively) or patterns like ``logs/*.txt``. The driver resolves
them when the job starts; the workers must see the same files. Names that begin with ``.`` or ``_``
are hidden: folders and patterns leave them out. ``\\n``, ``\\r\\n`` and ``\\r`` end a line and are
not part of it. A ``.gz`` file is unpacked; its positions count unpacked bytes. Law: the position
after a line is the start of the next, whatever the block size.
"""

import glob
import gzip
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final, cast

from headgate.base.errors import LineTooLong, LineUndecodable, PathUnusable, PlanInvalid
from headgate.connectors.formats.lines import MAX_LINE_BYTES, check_text, encoding_name
from headgate.connectors.paths import AnyPath, local_path, short_places
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Source, SplitLag, SplitReader

BLOCK_BYTES: Final = 64 * 1024

_UNREADABLE: Final = (OSError, EOFError, zlib.error)
"""What reading raises; the last two come from a packed file that is cut short or no such file."""
_MARK: Final = b"\xef\xbb\xbf"
"""What some programs put in front of UTF-8 (``utf-8-sig``)."""


@dataclass(frozen=True)
class TextFormat:
    """How the bytes of a file become lines of text."""

    encoding: str = "utf-8"
    errors: str = "strict"
    max_line_bytes: int = MAX_LINE_BYTES

    def __post_init__(self) -> None:
        check_text("text files", self.encoding, self.errors, self.max_line_bytes)

    def open(self, path: str, position: object) -> "TextLineReader":
        return TextLineReader(path, position, self)


class TextLineReader(SplitReader):
    """The lines of one file from a position on."""

    def __init__(
        self, path: str, position: object, form: TextFormat, block_bytes: int = BLOCK_BYTES
    ) -> None:
        self._path = path
        self._form = form
        self._block_bytes = block_bytes
        self._marked = encoding_name(form.encoding) == "utf-8-sig"
        self._encoding = "utf-8" if self._marked else form.encoding
        self._file: BinaryIO | None = None
        """Open from the first poll to the end of the file, for a task may have many readers."""
        self._ended = False
        self._offset = 0
        """Where ``_block`` begins."""
        if position is not None:
            assert isinstance(position, int), position
            self._offset = position
        self._block = b""
        """Whole lines, those of ``_lines``; kept to find positions within it."""
        self._lines: list[str] = []
        self._taken = 0
        self._rest = bytearray()
        """The beginning of a line whose end was not read yet."""
        self._size: int | None = None
        """Of the file; None: nobody has asked."""

    def poll(self, limit: int) -> list[str] | None:
        if self._taken == len(self._lines) and not self._fill():
            return None
        lines = self._lines[self._taken : self._taken + limit]
        self._taken += len(lines)
        return lines

    def wait_ms(self) -> float:
        return 0.0

    def position(self) -> int:
        if self._taken == len(self._lines):
            return self._offset + len(self._block)
        begun = self._block.splitlines(keepends=True)[: self._taken]
        return self._offset + sum(map(len, begun))

    def lag(self) -> SplitLag | None:
        """About the bytes behind the last line; how many a packed file has, nobody knows."""
        if self._size is None and not self._path.endswith(".gz"):
            self._size = os.stat(self._path).st_size
        if self._size is None:
            return None
        read = len(self._block) * self._taken // max(1, len(self._lines))
        return SplitLag(bytes=max(0, self._size - self._offset - read))

    def close(self) -> None:
        self._ended = True
        if self._file is not None:
            self._file.close()
            self._file = None

    def _fill(self) -> bool:
        """Take the next lines; False: there are none."""
        if self._ended:
            return False
        if self._file is None:
            self._file = open_file(self._path, self._offset)
        self._offset += len(self._block)
        self._block, self._lines, self._taken = b"", [], 0
        block = self._read_lines(self._file)
        if not block:
            self.close()
            return False
        self._lines = self._decode(block)
        self._block = block
        return True

    def _read_lines(self, file: BinaryIO) -> bytes:
        """The next whole lines with their ends; the last one of the file may lack its end."""
        rest = self._rest
        while True:
            searched = len(rest)
            try:
                data = file.read(self._block_bytes)
            except _UNREADABLE as error:
                raise PathUnusable(self._path, f"cannot be read: {error}") from error
            rest += data
            if not data:
                cut = len(rest)
            else:
                # The last byte is left out for \r: a \n may follow in the next block.
                cut = 1 + max(
                    rest.rfind(b"\n", searched),
                    rest.rfind(b"\r", max(0, searched - 1), len(rest) - 1),
                )
            block = bytes(rest[:cut])
            del rest[:cut]
            self._check_lengths(block)
            if block or not data:
                return block

    def _check_lengths(self, block: bytes) -> None:
        limit = self._form.max_line_bytes
        # An unfinished line may still get the byte that ends it, and a \r that is no content.
        if len(self._rest) > limit + 1 or (
            len(block) > limit and any(len(line) > limit for line in block.splitlines())
        ):
            raise LineTooLong(self._path, limit)

    def _decode(self, block: bytes) -> list[str]:
        if self._marked and self._offset == 0:
            block = block.removeprefix(_MARK)
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        try:
            text = block.decode(self._encoding, self._form.errors)
        except UnicodeDecodeError as error:
            line = self._lines_before() + block.count(b"\n", 0, error.start) + 1
            raise LineUndecodable(self._path, line, self._form.encoding, error.reason) from error
        lines = text.split("\n")
        if not lines[-1]:
            lines.pop()
        return lines

    def _lines_before(self) -> int:
        """Counted only for an error's sake: a position knows bytes, people know lines."""
        lines, left, last = 0, self._offset, b""
        with open_file(self._path, 0) as file:
            while left and (data := file.read(min(left, self._block_bytes))):
                left -= len(data)
                lines += data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")
                lines -= last == b"\r" and data.startswith(b"\n")
                last = data[-1:]
        return lines


def open_file(path: str, position: int) -> BinaryIO:
    """The file at a position; refuses one that has become shorter than that."""
    try:
        if path.endswith(".gz"):
            file = cast(BinaryIO, gzip.open(path, "rb"))  # noqa: SIM115 - the reader closes it
        else:
            file = open(path, "rb", buffering=0)  # noqa: SIM115
    except OSError as error:
        raise PathUnusable(
            path, f"cannot be read here: {error.strerror}; every worker needs to see the file"
        ) from error
    if position == 0:
        return file
    try:
        reached = file.seek(position)
        if not path.endswith(".gz"):
            reached = min(reached, os.fstat(file.fileno()).st_size)
    except _UNREADABLE as error:
        file.close()
        raise PathUnusable(path, f"cannot be read: {error}") from error
    if reached < position:
        file.close()
        raise PathUnusable(
            path, f"was read up to byte {position} before, and now has only {reached}"
        )
    return file


@dataclass(frozen=True, init=False)
class TextFileSource(Source):
    """The lines of all files at ``paths``, without their ends; ``.gz`` files are unpacked.

    Several paths that lead to the same file read it once.
    """

    paths: tuple[str, ...]
    form: TextFormat

    bounded = True
    untimed = True
    finds_more = True

    def __init__(
        self,
        *paths: AnyPath,
        encoding: str = "utf-8",
        errors: str = "strict",
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        if not paths:
            raise PlanInvalid("a source of files needs a path; give at least one")
        object.__setattr__(self, "paths", tuple(map(local_path, paths)))
        object.__setattr__(self, "form", TextFormat(encoding, errors, max_line_bytes))

    @property
    def default_name(self) -> str:
        return f"files {short_places(self.paths)}"

    def splits(self, parallelism: int) -> Sequence[str]:
        return find_files(self.paths)

    def open(self, split: object, position: object, context: ConnectorContext) -> TextLineReader:
        assert isinstance(split, str), split
        return self.form.open(split, position)


class StreamFormat:
    """The formats that ``FileSource`` reads, under PyFlink's names."""

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> TextFormat:
        return TextFormat(charset_name)


class FileSource:
    """Builds a source of files in the words of PyFlink; see ``TextFileSource`` for shorter ones."""

    @staticmethod
    def for_record_stream_format(stream_format: TextFormat, *paths: AnyPath) -> "FileSourceBuilder":
        return FileSourceBuilder(stream_format, paths)


class FileSourceBuilder:
    """Made by ``FileSource.for_record_stream_format``."""

    def __init__(self, stream_format: TextFormat, paths: tuple[AnyPath, ...]) -> None:
        self._format = stream_format
        self._paths = paths

    def process_static_file_set(self) -> "FileSourceBuilder":
        """Read the files that are there when the job starts: the only way today."""
        return self

    def build(self) -> TextFileSource:
        form = self._format
        return TextFileSource(
            *self._paths,
            encoding=form.encoding,
            errors=form.errors,
            max_line_bytes=form.max_line_bytes,
        )


def find_files(paths: Sequence[str]) -> list[str]:
    """All files that the paths lead to, each once, sorted within a folder or pattern."""
    found: dict[str, None] = {}
    for path in paths:
        found.update(dict.fromkeys(_files_at(os.path.abspath(path))))
    return list(found)


def _files_at(path: str) -> Iterator[str]:
    if os.path.isdir(path):
        yield from _files_below(path, ())
    elif os.path.isfile(path):
        yield path
    elif os.path.exists(path):
        raise PathUnusable(path, "is neither a file nor a folder; read pipes with a SourceFunction")
    elif matches := [] if not glob.has_magic(path) else glob.glob(path, recursive=True):
        for match in sorted(matches):
            if not _hidden(match):
                yield from _files_at(match)
    else:
        raise PathUnusable(path, "does not exist; check the path, also on the driver's machine")


def _files_below(folder: str, above: tuple[str, ...]) -> Iterator[str]:
    real = os.path.realpath(folder)
    if real in above:  # a link that leads back up
        return
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise PathUnusable(folder, f"cannot be listed: {error.strerror}") from error
    for name in names:
        path = os.path.join(folder, name)
        if _hidden(path):
            continue
        if os.path.isdir(path):
            yield from _files_below(path, (*above, real))
        elif os.path.isfile(path):
            yield path


def _hidden(path: str) -> bool:
    return os.path.basename(path).startswith((".", "_"))
