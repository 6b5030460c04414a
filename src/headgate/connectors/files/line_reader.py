"""Reads the records of a file of lines, or of a piece of it, from a position on.

``\\n``, ``\\r\\n`` and ``\\r`` end a line. A piece owns the lines that begin in it, as Hadoop's do:
it is read past its end to the end of its last line, and begins after the first line end that it
finds from the byte before it on. Law: the position after a record is the start of the next line,
whatever the size of the blocks; in any cut of a file each line is read by one piece.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from headgate.base.elements import Record
from headgate.base.errors import FileGone, LineTooLong, PathUnusable
from headgate.connectors.files.file_access import FileAccess, OpenFile, printable, unpacker
from headgate.connectors.files.splits import FileSplit, find_split, skip_missing_file
from headgate.connectors.formats.lines import LineParser, RejectedLine
from headgate.functions.context import ConnectorContext
from headgate.functions.source import SplitLag, SplitReader

BLOCK_BYTES: Final = 64 * 1024
SHOWN_BYTES: Final = 64 * 1024
"""How many bytes of a line that is too long are reported."""


class RecordFormat(Protocol):
    """How a file of lines is read; travels to the tasks."""

    @property
    def max_line_bytes(self) -> int: ...

    @property
    def has_header(self) -> bool:
        """Whether the first line of a file says what the others hold."""

    @property
    def spans_lines(self) -> bool:
        """Whether a record may take several lines: such files are read in one piece."""

    def parser(self, header: bytes, where: str) -> LineParser:
        """For one file; ``header`` is its first line if it has one that counts."""


class LineReader(SplitReader):
    """The records of one split from a position on."""

    gives_away = True

    def __init__(
        self,
        split: FileSplit,
        position: object,
        form: RecordFormat,
        context: ConnectorContext,
        access: FileAccess,
        skip_missing: bool = False,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self._split = split
        self._form = form
        self._context = context
        self._access = access
        self._skip_missing = skip_missing
        self._block_bytes = block_bytes
        self._file: OpenFile | None = None
        """Open from the first poll to the end of the split, for a task may have many readers."""
        self._path = split.path
        self._parser: LineParser | None = None
        self._ended = False
        self._aligned = position is not None or split.start == 0
        """Whether ``_offset`` is the beginning of a line."""
        assert position is None or isinstance(position, int), position
        self._offset = split.start if position is None else position
        """Where the block begins."""
        self._length = 0
        """The length of the block in bytes."""
        self._data = b""
        """The lines of the block; kept to find positions within it. Empty: they were too long."""
        self._records: list[Record] = []
        self._ends: list[int] | None = None
        self._rejected: deque[RejectedLine] = deque()
        self._taken = 0
        self._passed = 0
        """After how many lines of the block the last rejected line ended."""
        self._rest = bytearray()
        """What was read after the block: the beginning of a line, or lines that were put back."""
        self._needs_more = False
        """The lines in ``_rest`` are no whole record."""
        self._at_end = False
        """Whether the end of the file was read."""
        self._size: int | None = None
        self._counted = (split.start, 0)
        """An offset, and how many lines of the split stand before it."""

    def poll(self, limit: int) -> Sequence[Record] | None:
        while True:
            taken = self._taken
            if self._rejected and self._rejected[0].before == taken:
                rejected = self._rejected.popleft()
                self._passed = rejected.end
                self._reject(rejected)
            elif taken < len(self._records):
                break
            elif not self._fill():
                return None
        until = taken + limit
        if self._rejected:
            until = min(until, self._rejected[0].before)
        records = self._records[taken:until]
        self._taken = taken + len(records)
        return records

    def wait_ms(self) -> float:
        return 0.0

    def position(self) -> int | None:
        if not self._aligned:
            return None
        if self._taken == len(self._records) and not self._rejected:
            return self._offset + self._length
        lines = self._passed
        if self._taken:
            ends = self._ends
            lines = max(lines, self._taken if ends is None else ends[self._taken - 1])
        return self._offset + sum(map(len, self._data.splitlines(keepends=True)[:lines]))

    def lag(self) -> SplitLag | None:
        """About the bytes after the last record; how many a packed file has, nobody knows."""
        if unpacker(self._path) is not None:
            return None
        end = self._split.end
        if end is None:
            if self._size is None:
                found = self._access.stat(self._path)
                self._size = 0 if found is None else found.size
            end = self._size
        read = self._length * self._taken // max(1, len(self._records))
        return SplitLag(bytes=max(0, end - self._offset - read))

    def close(self) -> None:
        self._ended = True
        if self._file is not None:
            self._file.close()
            self._file = None

    # Blocks of lines, and what becomes of them.

    def _fill(self) -> bool:
        """Make the next lines records and rejected lines; False: there are none."""
        while not self._ended:
            if self._file is None and not self._open():
                break
            self._offset += self._length
            self._length, self._data = 0, b""
            self._records, self._ends, self._taken, self._passed = [], None, 0, 0
            data = self._read_lines()
            if self._rejected:
                return True
            if not data:
                break
            self._parse(data)
            if self._records or self._rejected:
                return True
        self._offset += self._length
        self._length = 0
        self.close()
        return False

    def _parse(self, data: bytes) -> None:
        assert self._parser is not None
        limit = self._form.max_line_bytes
        if len(data) > limit and not self._form.spans_lines:
            lengths = list(map(len, data.splitlines()))
            if max(lengths) > limit:
                first = next(at for at, length in enumerate(lengths) if length > limit)
                data = self._put_back(data, first or 1)
                if not first:
                    self._reject_long(data, len(data))
                    return
        block = self._parser.parse(data, self._offset == 0, self._at_end and not self._rest)
        if block.used is not None:
            data = self._put_back(data, block.used)
            self._needs_more = bool(self._rest)
        self._data, self._length = data, len(data)
        self._records, self._ends, self._rejected = block.records, block.ends, block.rejected

    def _put_back(self, data: bytes, lines: int) -> bytes:
        """The first lines; the others are read again, before or with what follows them."""
        kept = sum(map(len, data.splitlines(keepends=True)[:lines]))
        self._rest[:0] = data[kept:]
        return data[:kept]

    def _reject_long(self, data: bytes, length: int) -> None:
        limit = self._form.max_line_bytes
        raw = bytes(data[:SHOWN_BYTES]).splitlines()[0]
        self._length = length
        self._rejected.append(
            RejectedLine(0, 0, 1, raw, lambda where, line: LineTooLong(where, limit))
        )

    def _reject(self, rejected: RejectedLine) -> None:
        """Raises its error, unless the source is to skip such lines."""
        where = printable(self._path)
        if self._split.start:
            where = f"{where} from byte {self._split.start} on"
        self._context.malformed(rejected.raw, rejected.error(where, self._number(rejected.line)))

    def _number(self, line: int) -> int:
        """The number of a line of the block, from 1. Counted for errors only."""
        offset, lines = self._counted
        file = self._access.open(self._path, offset)
        try:
            last = b""
            while offset < self._offset:
                data = file.read(min(self._block_bytes, self._offset - offset))
                if not data:
                    break
                offset += len(data)
                lines += data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")
                lines -= last == b"\r" and data.startswith(b"\n")
                last = data[-1:]
        finally:
            file.close()
        self._counted = (offset, lines)
        return lines + line + 1

    # Bytes.

    def _open(self) -> bool:
        """False: the file is gone, which is no error here."""
        try:
            self._file = self._open_found()
        except FileGone as error:
            if not self._skip_missing:
                raise
            skip_missing_file(self._context, error)
            return False
        if not self._aligned:
            self._align(self._file)
        return True

    def _open_found(self) -> OpenFile:
        """Its file may be renamed at any moment, and another one take the name."""
        while True:
            path = find_split(self._access, self._split)
            try:
                file = self._open_at(path)
            except FileGone:
                if find_split(self._access, self._split) == path:
                    raise
                continue
            try:
                if find_split(self._access, self._split) == path:
                    return file
            except BaseException:
                file.close()
                raise
            file.close()

    def _open_at(self, path: str) -> OpenFile:
        self._path = path
        header = self._read_header() if self._form.has_header else b""
        self._parser = self._form.parser(header, printable(path))
        return self._access.open(path, self._offset - (not self._aligned))

    def _read_header(self) -> bytes:
        """The first line of the file, which a split may not begin with."""
        file, header = self._access.open(self._path), b""
        try:
            while (end := line_start(header, 1, False)) < 0:
                data = file.read(self._block_bytes)
                if not data or len(header) > self._form.max_line_bytes:
                    return header
                header += data
        finally:
            file.close()
        return header[:end]

    def _align(self, file: OpenFile) -> None:
        """Go to the first line that begins in the split, from the byte before it on."""
        rest, begin = self._rest, self._offset - 1
        while (start := line_start(rest, 1, self._at_end)) < 0:
            begin += max(0, len(rest) - 1)
            del rest[:-1]
            data = file.read(self._block_bytes)
            self._at_end = not data
            rest += data
        del rest[:start]
        self._offset, self._aligned = begin + start, True
        self._counted = (self._offset, 0)

    def _read_lines(self) -> bytes:
        """The next whole lines of the split; nothing: there are none, or ``_rejected`` has one."""
        assert self._file is not None
        rest, limit, searched = self._rest, self._form.max_line_bytes, 0
        end = None if self._split.end is None else self._split.end - self._offset
        if end is not None and end <= 0:
            return b""
        while True:
            if not self._needs_more and (count := self._whole_lines(end, searched)):
                data = bytes(rest[:count])
                del rest[:count]
                return data
            if self._at_end:
                return b""
            if len(rest) > limit + 1:  # it may still get its end, of two bytes
                self._skip_long(self._file)
                return b""
            searched = len(rest)
            wanted = max(self._block_bytes, searched if self._needs_more else 0)
            if end is not None and searched < end:
                wanted = min(wanted, end - searched)
            data = self._file.read(wanted)
            rest += data
            self._needs_more = False
            if not data:
                self._at_end = True
                self._check_size(self._file, self._offset + len(rest))

    def _whole_lines(self, end: int | None, searched: int) -> int:
        """How many bytes of ``_rest`` are whole lines of the split; before ``searched`` is none."""
        rest = self._rest
        if end is not None and len(rest) >= end:
            start = line_start(rest, end, self._at_end)
            if start >= 0:
                return start
        if self._at_end:
            return len(rest)
        # The last byte is left out for \r: a \n may follow in the next block.
        return 1 + max(
            rest.rfind(b"\n", searched), rest.rfind(b"\r", max(0, searched - 1), len(rest) - 1)
        )

    def _skip_long(self, file: OpenFile) -> None:
        """Go past a line that is too long, and keep only its beginning."""
        rest, length = self._rest, 0
        shown = bytes(rest[:SHOWN_BYTES])
        while (start := line_start(rest, 1, self._at_end)) < 0:
            length += max(0, len(rest) - 1)
            del rest[:-1]
            data = file.read(self._block_bytes)
            self._at_end = not data
            rest += data
        del rest[:start]
        self._needs_more = False
        self._reject_long(shown, length + start)

    def _check_size(self, file: OpenFile, reached: int) -> None:
        """Refuse a file that has become shorter than what was read, or was to be read."""
        end = self._split.end
        if unpacker(self._path) is not None or (end is not None and reached >= end):
            return
        size = file.size()
        if size < (reached if end is None else end):
            raise PathUnusable(
                printable(self._path),
                f"has become shorter while it was read: it had {max(reached, end or 0)} bytes and "
                f"has {size} now; write new files instead of cutting old ones",
            )


def line_start(data: bytes | bytearray, at: int, ended: bool) -> int:
    """The first beginning of a line at ``at`` or after it; -1: more bytes must say.

    ``at`` is 1 or more; ``ended``: no more bytes follow.
    """
    newline = data.find(b"\n", at - 1)
    carriage = data.find(b"\r", at - 1, len(data) if newline < 0 else newline)
    if carriage < 0:
        return newline + 1 if newline >= 0 else (len(data) if ended else -1)
    if carriage + 1 == len(data):
        return carriage + 1 if ended else -1
    return carriage + 2 if newline == carriage + 1 else carriage + 1
