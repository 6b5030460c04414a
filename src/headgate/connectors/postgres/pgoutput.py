"""Decodes pgoutput, PostgreSQL's own form of logical replication: messages in, rows with kinds out.

Law: the place of a record, as LSN and index, is the same whenever its transaction is sent: the LSN
is that of the transaction's commit, the index counts its records. Those before the place that the
decoder was made for are left out. Pure: ``changes`` brings the bytes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from struct import Struct
from typing import Any, Final, TypeAlias

from headgate.api.row import Row, RowKind, make_row
from headgate.connectors.not_sent import NOT_SENT

Place: TypeAlias = tuple[int, int]
"""LSN of a commit and how many records of it are done; between transactions an LSN and 0."""
Loader: TypeAlias = Callable[[list[bytes | None]], Sequence[Any]]
"""From the values' texts to Python's values."""

METADATA: Final = ("table", "lsn", "xid", "committed_at")
EPOCH_MS: Final = 946_684_800_000
"""PostgreSQL counts from the year 2000."""

_BEGIN: Final = Struct(">QqI")
_COMMIT: Final = Struct(">xQQq")
_INT: Final = Struct(">I").unpack_from
_SHORT: Final = Struct(">H").unpack_from
_COLUMN: Final = Struct(">Ii").unpack_from
_I, _U, _D, _T, _B, _C, _R = b"IUDTBCR"
_TEXT, _NULL, _KEY, _OLD = b"tnKO"


def shown_lsn(lsn: int) -> str:
    """As PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def read_lsn(text: str) -> int:
    """From PostgreSQL's text."""
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


class MessageBroken(ValueError):
    """Bytes that are no message of pgoutput."""


class ValueUnreadable(ValueError):
    """A value that Python's type cannot hold, such as an infinite date."""


@dataclass(slots=True)
class ChangedTable:
    """A table as the messages that follow describe it."""

    name: str
    columns: list[str]
    """With the columns of metadata."""
    keys: list[bool]
    types: list[int]
    load: Loader
    about: tuple[Any, ...] = ()
    """Values of the metadata, in the current transaction."""
    about_of: int = -1


@dataclass(slots=True)
class ChangeDecoder:
    """Decodes the messages of one connection; ``resume``: the first place that is wanted."""

    make_loader: Callable[[list[int]], Loader]
    resume: Place
    metadata: tuple[str, ...] = ()
    with_truncates: bool = True
    in_transaction: bool = False
    lsn: int = 0
    index: int = 0
    commit_ms: int = 0
    _skip: float = 0
    _units: int = 1
    """How many records the message at hand makes, if its values can be read."""
    _xid: int = 0
    _tables: dict[int, ChangedTable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lsn, self.index = self.resume

    def decode(self, data: bytes, at: int, out: list[Row]) -> None:
        """One message, from ``at`` on; its records are appended to ``out``.

        Raises MessageBroken, and ValueUnreadable after the place has moved past the record.
        """
        kind = data[at]
        if self._skip == math.inf and kind in b"IUDT":
            return
        self._units = 1
        try:
            if kind == _I:
                table = self._table(data, at + 1)
                cells, _ = _cells(data, at + 6)
                self._emit(table, self._values(table, cells), RowKind.INSERT, out)
            elif kind == _U:
                self._update(data, at + 1, out)
            elif kind == _D:
                table = self._table(data, at + 1)
                self._emit(table, self._old(table, data, at + 5)[0], RowKind.DELETE, out)
            elif kind == _B:
                self._begin(*_BEGIN.unpack_from(data, at + 1))
            elif kind == _C:
                _, end, _ = _COMMIT.unpack_from(data, at + 1)
                self.in_transaction = False
                if self._skip < math.inf:
                    self.lsn, self.index = end, 0
                self._skip = 0
            elif kind == _R:
                self._relation(data, at + 1)
            elif kind == _T:
                self._truncate(data, at + 1, out)
        except (IndexError, KeyError, UnicodeError) as error:
            raise _broken(data, at, error) from error
        except ValueUnreadable:
            self.index += self._units
            if self.index > self._skip:
                raise
        except Exception as error:
            if type(error).__name__ == "error":  # struct's
                raise _broken(data, at, error) from error
            raise

    @property
    def place(self) -> Place:
        """The place after the last record; never before the place that was asked for."""
        return max((self.lsn, self.index), self.resume)

    def passed(self, lsn: int) -> None:
        """Nothing more comes from before ``lsn``; between two transactions."""
        if not self.in_transaction and lsn > self.lsn:
            self.lsn, self.index = lsn, 0

    def _begin(self, lsn: int, committed: int, xid: int) -> None:
        self.in_transaction = True
        self._xid = xid
        self.commit_ms = committed // 1000 + EPOCH_MS
        wanted, done = self.resume
        if lsn < wanted:
            self._skip = math.inf
            return
        self._skip = done if lsn == wanted else 0
        self.lsn, self.index = lsn, 0

    def _table(self, data: bytes, at: int) -> ChangedTable:
        return self._tables[_INT(data, at)[0]]

    def _emit(self, table: ChangedTable, values: list[Any], kind: RowKind, out: list[Row]) -> None:
        self.index += 1
        if self.index > self._skip:
            if self.metadata:
                values += self._about(table)
            out.append(make_row(table.columns, values, kind))

    def _update(self, data: bytes, at: int, out: list[Row]) -> None:
        table = self._table(data, at)
        at += 4
        old: list[Any] | None = None
        is_whole = data[at] == _OLD
        if is_whole or data[at] == _KEY:
            self._units = 2
            old, at = self._old(table, data, at)
        cells, _ = _cells(data, at + 1)
        new = self._values(table, cells)
        if old is not None:
            if is_whole:
                pairs = zip(new, old, strict=True)
                new = [was if value is NOT_SENT else value for value, was in pairs]
            self._emit(table, old, RowKind.UPDATE_BEFORE, out)
        self._emit(table, new, RowKind.UPDATE_AFTER, out)

    def _old(self, table: ChangedTable, data: bytes, at: int) -> tuple[list[Any], int]:
        """A row as it was: all of it, or only its key."""
        is_key = data[at] == _KEY
        cells, at = _cells(data, at + 1)
        values = self._values(table, cells)
        if is_key:
            pairs = zip(values, table.keys, strict=True)
            values = [value if key else NOT_SENT for value, key in pairs]
        return values, at

    def _truncate(self, data: bytes, at: int, out: list[Row]) -> None:
        (count,) = _INT(data, at)
        for number in range(count):
            table = self._tables.get(_INT(data, at + 5 + 4 * number)[0])
            if table is not None and self.with_truncates:
                self._emit(table, [NOT_SENT] * len(table.keys), RowKind.DELETE, out)

    def _relation(self, data: bytes, at: int) -> None:
        (oid,) = _INT(data, at)
        schema, at = _string(data, at + 4)
        name, at = _string(data, at)
        (count,) = _SHORT(data, at + 1)
        at += 3
        columns: list[str] = []
        keys: list[bool] = []
        types: list[int] = []
        for _ in range(count):
            keys.append(bool(data[at] & 1))
            column, at = _string(data, at + 1)
            columns.append(column)
            types.append(_COLUMN(data, at)[0])
            at += 8
        columns += [f"pg_{about}" for about in self.metadata]
        table = ChangedTable(
            f"{schema or 'pg_catalog'}.{name}", columns, keys, types, self.make_loader(types)
        )
        self._tables[oid] = table

    def _values(self, table: ChangedTable, cells: list[Any]) -> list[Any]:
        if NOT_SENT in cells:
            missing = [at for at, cell in enumerate(cells) if cell is NOT_SENT]
            for at in missing:
                cells[at] = None
            values = self._loaded(table, cells)
            for at in missing:
                values[at] = NOT_SENT
            return values
        return self._loaded(table, cells)

    def _loaded(self, table: ChangedTable, cells: list[bytes | None]) -> list[Any]:
        try:
            return list(table.load(cells))
        except Exception as error:
            raise _unreadable(table, cells, self.make_loader, error) from error

    def _about(self, table: ChangedTable) -> tuple[Any, ...]:
        if table.about_of != self._xid:
            facts = {
                "table": table.name,
                "lsn": shown_lsn(self.lsn),
                "xid": self._xid,
                "committed_at": _YEAR_1970 + timedelta(milliseconds=self.commit_ms),
            }
            table.about = tuple(facts[name] for name in self.metadata)
            table.about_of = self._xid
        return table.about


_YEAR_1970: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def _cells(data: bytes, at: int) -> tuple[list[Any], int]:
    """The values of a row as texts: None for NULL, NOT_SENT for what was left out."""
    (count,) = _SHORT(data, at)
    at += 2
    cells: list[Any] = []
    for _ in range(count):
        kind = data[at]
        if kind == _TEXT:
            start = at + 5
            at = start + _INT(data, at + 1)[0]
            cells.append(data[start:at])
        else:
            cells.append(None if kind == _NULL else NOT_SENT)
            at += 1
    if at > len(data):
        raise IndexError("the message ends within a value")
    return cells, at


def _string(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1


def _broken(data: bytes, at: int, error: Exception) -> MessageBroken:
    return MessageBroken(f"no message of pgoutput ({error!r}): {data[at : at + 40]!r}")


def _unreadable(
    table: ChangedTable,
    cells: list[bytes | None],
    make_loader: Callable[[list[int]], Loader],
    error: Exception,
) -> ValueUnreadable:
    """Names the column, found by trying each."""
    for column, cell, oid in zip(table.columns, cells, table.types, strict=False):
        try:
            make_loader([oid])([cell])
        except Exception as problem:
            return ValueUnreadable(
                f"column {column!r} of table {table.name}: {cell!r} has no value in Python "
                f"({' '.join(str(problem).split())})"
            )
    return ValueUnreadable(f"a row of table {table.name}: {error}")
