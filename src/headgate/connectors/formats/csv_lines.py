"""Files of CSV rows: a block of lines becomes rows, column by column.

A row is a line, unless ``multiline`` says that fields in quotes may hold line ends: then a file
cannot be cut, because only its beginning tells which line ends are in quotes. With a header the
columns are found by name, in any order; columns that the type does not have are left out. Law: what
stands in quotes over a line end is never cut silently: without ``multiline`` the row is malformed.
"""

import csv
import io
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.api.row import Row, named_row, rows_with
from headgate.api.types.types import RowTypeInfo
from headgate.base.elements import Record
from headgate.base.errors import PathUnusable
from headgate.connectors.formats.csv import CsvDialect, column_reader, read_value
from headgate.connectors.formats.lines import (
    MAX_LINE_BYTES,
    NO_RECORD,
    LineBlock,
    RejectedLine,
    check_text,
    each_line,
    encoding_name,
    malformed,
    with_newlines,
    without_mark,
)

_OPEN_QUOTE: Final = "unexpected end of data"
"""What Python's csv says of a row whose quotes are not closed."""


@dataclass(frozen=True)
class CsvFormat:
    """How rows are told apart, and what they are."""

    type_info: RowTypeInfo | None = None
    """None: rows of texts, with the names of the header if there is one, else tuples."""
    dialect: CsvDialect = CsvDialect()
    header: bool = False
    multiline: bool = False
    encoding: str = "utf-8"
    max_line_bytes: int = MAX_LINE_BYTES

    def __post_init__(self) -> None:
        check_text("CSV files", self.encoding, "strict", self.max_line_bytes)

    @property
    def has_header(self) -> bool:
        return self.header

    @property
    def spans_lines(self) -> bool:
        return self.multiline

    def parser(self, header: bytes, where: str) -> "CsvParser":
        return CsvParser(self, header, where)


class CsvParser:
    """Reads the rows of one file."""

    def __init__(self, form: CsvFormat, header: bytes, where: str) -> None:
        csv.field_size_limit(max(csv.field_size_limit(), form.max_line_bytes))
        self._form = form
        self._utf8 = encoding_name(form.encoding) in ("utf-8", "utf-8-sig")
        self._encoding = "utf-8" if self._utf8 else form.encoding
        self._options = form.dialect.options()
        self._names = self._read_header(header, where) if form.header and header else None
        self._width: int | None = None if self._names is None else len(self._names)
        self._columns: list[tuple[int, Callable[[Sequence[str]], Record]]] = []
        kind = form.type_info
        if kind is not None:
            self._coerce = kind.coercer()
            places = self._places(kind, where)
            self._width = len(kind.field_names) if self._names is None else len(self._names)
            self._columns = [
                (place, column_reader(part, form.dialect))
                for place, part in zip(places, kind.field_types, strict=True)
            ]

    def parse(self, data: bytes, first: bool, last: bool) -> LineBlock:
        if first and self._utf8:
            data = without_mark(data)
        skipped = int(first and self._form.header)
        if self._form.multiline:
            return self._parse_spanning(data, skipped, last)
        data = with_newlines(data)
        try:
            return self._parse_lines(data, skipped)
        except (csv.Error, ValueError, ArithmeticError, TypeError):
            pass
        lines = iter(range(data.count(b"\n") + 1))
        return each_line(
            data,
            lambda line: NO_RECORD if next(lines) < skipped else self._read_line(line),
            malformed,
        )

    # The quick way: all lines are rows.

    def _parse_lines(self, data: bytes, skipped: int) -> LineBlock:
        lines = data.decode(self._encoding).split("\n")
        if not lines[-1]:
            lines.pop()
        if skipped:
            del lines[:skipped]
        if self._form.dialect.comments and any(line.startswith("#") for line in lines):
            raise ValueError("comments")
        rows = list(csv.reader(lines, strict=True, **self._options))
        if len(rows) != len(lines):
            raise ValueError(_OPEN_QUOTE)
        ends = list(range(skipped + 1, skipped + 1 + len(rows))) if skipped else None
        return LineBlock(self._records(rows), ends)

    def _records(self, rows: list[list[str]]) -> list[Record]:
        """Raises ValueError, ArithmeticError or TypeError if any does not fit."""
        if not rows:
            return []
        widths = set(map(len, rows))
        if widths != {self._width} and (self._width is not None or 0 in widths):
            raise ValueError("widths")
        if self._form.type_info is not None:
            columns = list(zip(*rows, strict=True))
            values = [read(columns[place]) for place, read in self._columns]
            return self._coerce(list(zip(*values, strict=True)))
        if self._names is not None:
            return list(rows_with(self._names, list(rows)))
        return list(map(tuple, rows))

    # The careful way: one row after the other.

    def _read_line(self, line: bytes) -> Record:
        text = line.decode(self._encoding)
        if self._leaves_out(text):
            return NO_RECORD
        try:
            rows = list(csv.reader([text], strict=True, **self._options))
        except csv.Error as error:
            advice = "; set multiline=True if fields hold line ends" * (str(error) == _OPEN_QUOTE)
            raise ValueError(f"{error}{advice}") from None
        return self._record(rows[0])

    def _leaves_out(self, text: str) -> bool:
        return not text or (self._form.dialect.comments and text.startswith("#"))

    def _record(self, row: list[str]) -> Record:
        """Raises ValueError, ArithmeticError or TypeError."""
        if self._width is not None and len(row) != self._width:
            raise ValueError(f"the row has {len(row)} fields and should have {self._width}")
        kind = self._form.type_info
        if kind is None:
            return tuple(row) if self._names is None else named_row(self._names, row)
        values = []
        fields = zip(kind.field_names, kind.field_types, self._columns, strict=True)
        for name, part, (place, _) in fields:
            try:
                values.append(read_value(part, row[place], self._form.dialect))
            except (ValueError, ArithmeticError) as error:
                raise ValueError(f"column {name!r}: {row[place]!r} is no {part!r}") from error
        record: Row = kind.coerced(values)
        return record

    # Rows that may take several lines.

    def _parse_spanning(self, data: bytes, skipped: int, last: bool) -> LineBlock:
        text = data.decode(self._encoding, "surrogateescape")
        lines = data.splitlines(keepends=True)
        reader = csv.reader(io.StringIO(text, newline=""), strict=True, **self._options)
        block = LineBlock([], [], deque())
        assert block.ends is not None
        begun = 0
        while begun < len(lines):
            record: Record = NO_RECORD
            problem: Exception | None = None
            try:
                record = self._record_of(next(reader), begun < skipped)
            except csv.Error as error:
                if str(error) == _OPEN_QUOTE and not last:
                    break
                problem = error
            except (ValueError, ArithmeticError, TypeError) as error:
                problem = error
            end = reader.line_num
            if problem is not None:
                raw = b"".join(lines[begun:end])
                cause = malformed(raw, problem)
                block.rejected.append(RejectedLine(len(block.records), begun, end, raw, cause))
            elif record is not NO_RECORD:
                block.records.append(record)
                block.ends.append(end)
            begun = end
        block.used = begun
        return block

    def _record_of(self, row: list[str], is_header: bool) -> Record:
        if is_header or not row or (self._form.dialect.comments and row[0].startswith("#")):
            return NO_RECORD
        for field in row:
            field.encode(self._encoding)  # what was no text comes back as no text
        return self._record(row)

    # The header.

    def _read_header(self, header: bytes, where: str) -> list[str]:
        if self._utf8:
            header = without_mark(header)
        try:
            text = header.decode(self._encoding).rstrip("\r\n")
            (names,) = csv.reader([text], strict=True, **self._options)
        except (csv.Error, ValueError) as error:
            raise PathUnusable(where, f"has no header that can be read: {error}") from None
        return names

    def _places(self, kind: RowTypeInfo, where: str) -> list[int]:
        names = self._names
        if names is None:
            return list(range(len(kind.field_names)))
        missing = [name for name in kind.field_names if name not in names]
        if missing:
            raise PathUnusable(
                where,
                f"has no column {missing[0]!r}, its header is {', '.join(names)}; mend the file, "
                f"or name its columns in the type",
            )
        return [names.index(name) for name in kind.field_names]
