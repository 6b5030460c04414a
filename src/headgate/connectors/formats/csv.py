"""Rows as lines of CSV, one line to a message, under PyFlink's names.

Arrays stand within a field, their elements apart by ``;``. An empty field is an empty STRING or
an empty array, and None for every other type; a null literal, if set, is None for all.
"""

import base64
import csv
import datetime
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final, TypeVar

from headgate.api.row import Row
from headgate.api.types.types import BasicTypeInfo, ElementsTypeInfo, RowTypeInfo, TypeInformation
from headgate.base.elements import Record
from headgate.base.errors import PlanInvalid
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
        self._with(array_delimiter=delimiter)
        return self

    def set_quote_character(self: _Builder, c: str) -> _Builder:
        self._with(quote=self._character("set_quote_character", c))
        return self

    def set_escape_character(self: _Builder, c: str) -> _Builder:
        self._with(escape=self._character("set_escape_character", c))
        return self

    def _with(self, **settings: str | bool | None) -> None:
        self._dialect = replace(self._dialect, **settings)  # type: ignore[arg-type]

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
            self._with(delimiter=self._character("set_field_delimiter", delimiter))
            return self

        def set_allow_comments(self, allow_comments: bool) -> "CsvRowDeserializationSchema.Builder":
            """Leave out lines that begin with ``#``."""
            self._with(comments=allow_comments)
            return self

        def set_null_literal(self, null_literal: str) -> "CsvRowDeserializationSchema.Builder":
            self._with(null=null_literal)
            return self

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
            self._with(delimiter=self._character("set_field_delimiter", c))
            return self

        def set_line_delimiter(self, delimiter: str) -> "CsvRowSerializationSchema.Builder":
            """What stands behind each line; an empty text: nothing."""
            self._with(line_end=delimiter)
            return self

        def disable_quote_character(self) -> "CsvRowSerializationSchema.Builder":
            self._with(quote=None)
            return self

        def set_null_literal(self, s: str) -> "CsvRowSerializationSchema.Builder":
            self._with(null=s)
            return self

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
