"""Rows as lines of CSV, one line to a message or many in a file, under PyFlink's names.

Arrays stand within a field, their elements apart by ``;``. An empty field is an empty STRING or
an empty array, and None for every other type; a null literal, if set, is None for all. In a file a
row is a line, unless ``multiline`` says that fields in quotes may hold line ends: then a file
cannot be cut, because only its beginning tells which line ends are in quotes. With a header the
columns are found by name, in any order; columns that the type does not have are left out. Law: what
stands in quotes over a line end is never cut silently: without ``multiline`` the row is malformed.
"""

import base64
import csv
import datetime
import io
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final, TypeVar

from headgate.api.row import Row, named_row, rows_with
from headgate.api.types.types import BasicTypeInfo, ElementsTypeInfo, RowTypeInfo, TypeInformation
from headgate.base.elements import Record
from headgate.base.errors import PathUnusable, PlanInvalid
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
from headgate.connectors.formats.schemas import (
    DeserializationSchema,
    SerializationSchema,
    check_row_type,
    unreadable,
)

_Builder = TypeVar("_Builder", bound="CsvBuilder")


@dataclass(frozen=True)
class CsvDialect:
    """How fields are told apart; None: there is no such thing."""

    delimiter: str = ","
    array_delimiter: str = ";"
    quote: str | None = '"'
    escape: str | None = None
    null: str | None = None
    line_end: str = "\n"
    comments: bool = False

    def options(self) -> dict[str, Record]:
        """For Python's csv."""
        quoting = csv.QUOTE_NONE if self.quote is None else csv.QUOTE_MINIMAL
        return {
            "delimiter": self.delimiter,
            "quotechar": self.quote,
            "escapechar": self.escape,
            "quoting": quoting,
            "lineterminator": self.line_end,
        }


class CsvBuilder:
    """The settings that reading and writing share."""

    schema = ""

    def __init__(self, type_info: TypeInformation) -> None:
        self._type_info = check_row_type(type_info, self.schema)
        check_fields(self.schema, self._type_info)
        self._dialect = CsvDialect()

    def set_array_element_delimiter(self: _Builder, delimiter: str) -> _Builder:
        return self._with(array_delimiter=delimiter)

    def set_quote_character(self: _Builder, c: str) -> _Builder:
        return self._with(quote=self._character("set_quote_character", c))

    def set_escape_character(self: _Builder, c: str) -> _Builder:
        return self._with(escape=self._character("set_escape_character", c))

    def _with(self: _Builder, **settings: str | bool | None) -> _Builder:
        self._dialect = replace(self._dialect, **settings)  # type: ignore[arg-type]
        return self

    def _character(self, method: str, text: str) -> str:
        if len(text) == 1:
            return text
        raise PlanInvalid(f"{self.schema}: {method}() was given {text!r}; give one character")


class CsvRowDeserializationSchema(DeserializationSchema):
    """A line becomes a Row. Made by ``CsvRowDeserializationSchema.Builder(type_info)``."""

    def __init__(self, type_info: RowTypeInfo, dialect: CsvDialect, ignores: bool = False) -> None:
        self._type_info = type_info
        self._dialect = dialect
        self._ignores = ignores

    class Builder(CsvBuilder):
        """Gathers the settings of a schema."""

        schema = "CsvRowDeserializationSchema"
        _ignores = False

        def set_field_delimiter(self, delimiter: str) -> "CsvRowDeserializationSchema.Builder":
            return self._with(delimiter=self._character("set_field_delimiter", delimiter))

        def set_allow_comments(self, allow_comments: bool) -> "CsvRowDeserializationSchema.Builder":
            """Leave out lines that begin with ``#``."""
            return self._with(comments=allow_comments)

        def set_null_literal(self, null_literal: str) -> "CsvRowDeserializationSchema.Builder":
            return self._with(null=null_literal)

        def set_ignore_parse_errors(
            self, ignore_parse_errors: bool
        ) -> "CsvRowDeserializationSchema.Builder":
            """Leave out lines that cannot be read."""
            self._ignores = ignore_parse_errors
            return self

        def build(self) -> "CsvRowDeserializationSchema":
            return CsvRowDeserializationSchema(self._type_info, self._dialect, self._ignores)

    def deserialize(self, message: bytes) -> Row | None:
        try:
            return self._read(str(message, "utf-8"))
        except (csv.Error, ValueError, ArithmeticError, TypeError) as error:
            if self._ignores:
                return None
            raise unreadable("CsvRowDeserializationSchema", message, error) from None

    def get_produced_type(self) -> RowTypeInfo:
        return self._type_info

    def _read(self, line: str) -> Row | None:
        dialect, kinds = self._dialect, self._type_info.field_types
        if dialect.comments and line.startswith("#"):
            return None
        rows = list(csv.reader(io.StringIO(line, newline=""), strict=True, **dialect.options()))
        if len(rows) != 1 or len(rows[0]) != len(kinds):
            found = f"{len(rows[0])} fields" if len(rows) == 1 else f"{len(rows)} lines"
            raise ValueError(f"it has {found}, the type has {len(kinds)} fields on one line")
        values = [
            read_value(kind, text, dialect) for kind, text in zip(kinds, rows[0], strict=True)
        ]
        return self._type_info.coerced(values)


class CsvRowSerializationSchema(SerializationSchema):
    """A row becomes a line. Made by ``CsvRowSerializationSchema.Builder(type_info)``."""

    def __init__(self, type_info: RowTypeInfo, dialect: CsvDialect) -> None:
        self._type_info = type_info
        self._dialect = dialect

    class Builder(CsvBuilder):
        """Gathers the settings of a schema."""

        schema = "CsvRowSerializationSchema"

        def set_field_delimiter(self, c: str) -> "CsvRowSerializationSchema.Builder":
            return self._with(delimiter=self._character("set_field_delimiter", c))

        def set_line_delimiter(self, delimiter: str) -> "CsvRowSerializationSchema.Builder":
            """What stands after each line; an empty text: nothing."""
            return self._with(line_end=delimiter)

        def disable_quote_character(self) -> "CsvRowSerializationSchema.Builder":
            return self._with(quote=None)

        def set_null_literal(self, s: str) -> "CsvRowSerializationSchema.Builder":
            return self._with(null=s)

        def build(self) -> "CsvRowSerializationSchema":
            return CsvRowSerializationSchema(self._type_info, self._dialect)

    def serialize(self, value: Record) -> bytes:
        dialect, text = self._dialect, io.StringIO()
        row = self._type_info.coerced(value)
        try:
            csv.writer(text, **dialect.options()).writerow([_text(item, dialect) for item in row])
        except csv.Error as error:
            raise ValueError(
                f"CsvRowSerializationSchema cannot write {row!r}: {error}; "
                f"set a quote or an escape character"
            ) from None
        return text.getvalue().encode()


def check_fields(schema: str, type_info: RowTypeInfo) -> None:
    """Refuse types that have no form in CSV."""
    for name, kind in zip(type_info.field_names, type_info.field_types, strict=True):
        _check_field(schema, name, kind)


def _check_field(schema: str, name: str, kind: TypeInformation) -> None:
    inner = kind.element_type if isinstance(kind, ElementsTypeInfo) else kind
    if isinstance(inner, BasicTypeInfo) and inner.name in _READ:
        return
    raise PlanInvalid(
        f"{schema}: field {name!r} is a {kind!r}, which has no form in CSV; "
        f"give single values or arrays of them"
    )


def read_value(kind: TypeInformation, text: str, dialect: CsvDialect) -> Record:
    """What a field says; raises ValueError, ArithmeticError or TypeError."""
    if text == dialect.null:
        return None
    if isinstance(kind, ElementsTypeInfo):
        if kind.is_bytes:
            return base64.b64decode(text, validate=True)
        parts = text.split(dialect.array_delimiter) if text else []
        return [read_value(kind.element_type, part, dialect) for part in parts]
    assert isinstance(kind, BasicTypeInfo)
    if not text and kind.name not in ("STRING", "CHAR"):
        return None
    return _READ[kind.name](text)


def _text(value: Record, dialect: CsvDialect) -> str:
    if value is None:
        return dialect.null or ""
    if isinstance(value, list):
        return dialect.array_delimiter.join(_text(item, dialect) for item in value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ")
    return str(value)


def _boolean(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.strip().lower() == "true"


def _iso(read: Callable[[str], Record]) -> Callable[[str], Record]:
    """Python 3.10 knows no Z for UTC."""
    return lambda text: read(f"{text[:-1]}+00:00" if text.endswith("Z") else text)


def column_reader(kind: TypeInformation, dialect: CsvDialect) -> Callable[[Sequence[str]], Record]:
    """What reads all fields of a column; raises as ``read_value`` does."""

    def careful(texts: Sequence[str]) -> list[Record]:
        return [read_value(kind, text, dialect) for text in texts]

    if not isinstance(kind, BasicTypeInfo):
        return careful
    read, is_text = _READ[kind.name], kind.name in ("STRING", "CHAR")

    def quick(texts: Sequence[str]) -> Sequence[Record]:
        if (not is_text and "" in texts) or (dialect.null is not None and dialect.null in texts):
            return careful(texts)
        return texts if is_text else list(map(read, texts))

    return quick


_READ: Final[dict[str, Callable[[str], Record]]] = {
    "STRING": str,
    "CHAR": str,
    "BOOLEAN": _boolean,
    **dict.fromkeys(("BYTE", "SHORT", "INT", "LONG", "BIG_INT"), int),
    **dict.fromkeys(("FLOAT", "DOUBLE"), float),
    "BIG_DEC": Decimal,
    "SQL_DATE": datetime.date.fromisoformat,
    "SQL_TIME": _iso(datetime.time.fromisoformat),
    "SQL_TIMESTAMP": _iso(datetime.datetime.fromisoformat),
}


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
