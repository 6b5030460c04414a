"""The table that a sink writes to: its columns, the values of a record, and COPY with blame.

Law: names are quoted, so any name of a table or column is safe; values travel in COPY's text format
and are read by the column's own type, so a value fits if PostgreSQL can read its text. A row that
does not fit is told with its column.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headgate.api.row import Row, RowKind, are_inserts, names_of, values_of
from headgate.base.elements import Record
from headgate.base.errors import ConnectorError, DatabaseUnready, PlanInvalid, TableUnfit, shown
from headgate.connectors.not_sent import NOT_SENT, SEND_ALL
from headgate.connectors.postgres.client import SinkDatabase, first_line, is_lost, psycopg_module

if TYPE_CHECKING:
    from headgate.connectors.postgres.client import PgConnection

Malformed: TypeAlias = Callable[[object, Exception], None]
"""``malformed`` of a ConnectorContext."""
JSON_TYPES: Final = ("json", "jsonb")

_COLUMNS: Final = """
    SELECT a.attname, format_type(a.atttypid, NULL)
    FROM pg_attribute a
    WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
      AND a.attgenerated = '' AND a.attidentity <> 'a'
    ORDER BY a.attnum
"""
_HOLDERS: Final = """
    SELECT DISTINCT coalesce(
        'process ' || l.pid || ' (' || coalesce(nullif(s.application_name, ''), 'unnamed') || ')',
        'prepared transaction ' || quote_literal(p.gid),
        'a prepared transaction')
    FROM pg_locks l
    LEFT JOIN pg_stat_activity s ON s.pid = l.pid
    LEFT JOIN pg_prepared_xacts p ON l.virtualtransaction = '-1/' || p.transaction
    WHERE l.granted AND l.relation = to_regclass(%s) AND l.pid IS DISTINCT FROM pg_backend_pid()
    LIMIT 5
"""
_OTHER_TABLE: Final = frozenset({"3F000", "42703", "42804", "42809", "42P01"})
"""States that say that a schema, table or column is gone, or of another type or kind."""
_PLACE: Final = re.compile(r"line (\d+)(?:, column (.+?)(?:: |$))?")


def quoted(name: str) -> str:
    """A name as SQL takes it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def quoted_table(name: str) -> str:
    """``table`` or ``schema.table``; names with a dot in them can be given in double quotes."""
    parts = re.findall(r'"(?:[^"]|"")*"|[^."]+', name)
    if not 1 <= len(parts) <= 2 or ".".join(parts) != name:
        raise PlanInvalid(f"{name!r} is no name of a table; give 'table' or 'schema.table'")
    return ".".join(part if part.startswith('"') else quoted(part) for part in parts)


@dataclass(frozen=True, slots=True)
class TargetTable:
    """The columns that are written, as the server has them."""

    name: str
    """Quoted."""
    columns: tuple[str, ...]
    json_places: tuple[int, ...]
    """Which columns are JSON: Python's dicts and lists become documents there, not arrays."""

    def listed(self, columns: Sequence[str] | None = None) -> str:
        return ", ".join(map(quoted, self.columns if columns is None else columns))

    def values(self) -> Callable[[Record], Sequence[Any]]:
        """A function from a record to its values, in the order of the columns."""
        columns, list_of = self.columns, list(self.columns)
        count = len(columns)

        def pick(record: Record) -> Sequence[Any]:
            if isinstance(record, Row):
                if (names := names_of(record)) is None or names == list_of:
                    found: Sequence[Any] = values_of(record)
                else:
                    found = [record[name] for name in columns]
            elif isinstance(record, tuple | list):
                found = record
            elif isinstance(record, Mapping):
                found = [record[name] for name in columns]
            else:
                found = (record,)
            if len(found) != count:
                raise ValueError(f"it has {len(found)} values for {count} columns")
            return found

        return self._with_json(pick) if self.json_places else pick

    def _with_json(
        self, pick: Callable[[Record], Sequence[Any]]
    ) -> Callable[[Record], Sequence[Any]]:
        places, wrap = self.json_places, psycopg_module("PostgresSink").types.json.Jsonb

        def picked(record: Record) -> Sequence[Any]:
            found = list(pick(record))
            for place in places:
                if found[place] is not None and not isinstance(found[place], str):
                    found[place] = wrap(found[place])
            return found

        return picked


def find_table(
    connection: "PgConnection", name: str, columns: Sequence[str] | None, whose: str
) -> TargetTable:
    """The table with the columns that are given, or all that can be written."""
    table = quoted_table(name)
    found: dict[str, str] = dict(connection.execute(_COLUMNS, (table,)).fetchall())
    if not found:
        raise PlanInvalid(
            f"{whose}: there is no table {name} that this user can see in the database; create "
            f"it, or give the name with its schema"
        )
    missing = [column for column in columns or () if column not in found]
    if missing:
        raise PlanInvalid(
            f"{whose}: table {name} has no column {missing[0]!r}; it has {', '.join(found)}"
        )
    chosen = tuple(columns or found)
    places = tuple(at for at, column in enumerate(chosen) if found[column] in JSON_TYPES)
    return TargetTable(table, chosen, places)


class TableRows:
    """From records to rows of a table; what is no row goes the way of the operator's policy."""

    def __init__(self, target: TargetTable, table: str, whose: str, malformed: Malformed) -> None:
        self._target = target
        self._values = target.values()
        self._table = table
        self._whose = whose
        self._malformed = malformed

    def inserts(self, records: Sequence[Record]) -> list[Sequence[Any]]:
        """The values of each record for a sink that only inserts: changes are malformed."""
        if are_inserts(records):
            return self.rows(records)
        found = []
        for record in records:
            kind = record.get_row_kind() if isinstance(record, Row) else RowKind.INSERT
            if kind is RowKind.INSERT:
                found.append(record)
                continue
            problem = f"{shown(record)} is a change ({kind}), and the sink inserts"
            problem = f"{self._whose}: {problem}; give keys=[...] and mode='upsert'"
            self._malformed(record, ConnectorError(problem))
        return self.rows(found)

    def rows(self, records: Sequence[Record]) -> list[Sequence[Any]]:
        """The values of each record that has those of a row."""
        if (alike := self._alike(records)) is not None:
            return alike
        values, found = self._values, []
        for record in records:
            try:
                found.append(values(record))
            except (KeyError, ValueError) as error:
                problem = str(error)
                if type(error) is KeyError and not isinstance(record, Row):
                    problem = f"it has no field {problem}"
                self._malformed(record, self._refused(record, problem.strip('"')))
        return found

    def _alike(self, records: Sequence[Record]) -> list[Sequence[Any]] | None:
        """Most records are all tuples, or all rows with the columns' names: no call for each."""
        target, kinds = self._target, set(map(type, records))
        if target.json_places or len(kinds) != 1:
            return None
        found: list[Sequence[Any]]
        if kinds == {tuple}:
            found = list(records)
        elif kinds == {Row}:
            columns = list(target.columns)
            if any(names is not None and names != columns for names in map(names_of, records)):
                return None
            found = list(map(tuple, map(values_of, records)))
        else:
            return None
        return found if set(map(len, found)) == {len(target.columns)} else None

    def _refused(self, record: Record, problem: str) -> ConnectorError:
        return ConnectorError(
            f"{self._whose}: {shown(record)} is no row of {self._table}: {problem}; map it to the "
            f"columns of the table, or name the columns that it has with columns=..."
        )


def copy_rows(
    connection: "PgConnection",
    target: str,
    columns: Sequence[str],
    rows: Callable[[], Iterable[Sequence[Any]]],
) -> None:
    """All rows, by COPY; raises RowRefused if a value is at fault.

    ``rows`` is called for them, and once more to find the row that was refused.
    """
    statement = f"COPY {target} ({', '.join(map(quoted, columns))}) FROM STDIN"
    row: Sequence[Any] = ()
    psycopg = psycopg_module("PostgresSink")
    place = -1
    try:
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            write = copy.write_row
            for row in rows():
                write(row)
    except psycopg.Error as error:
        found = _PLACE.search(error.diag.context or "")
        if found:
            row = next(islice(rows(), int(found[1]) - 1, None), ())
            column = found[2] or error.diag.column_name
            if column in columns:
                place = columns.index(column)
        elif error.sqlstate is None and not is_lost(error):  # what the library itself refuses
            place = _unwritable(connection, row)
        else:
            raise
        raise RowRefused(row, columns[place] if place >= 0 else "", error) from error
    except (TypeError, ValueError, OverflowError, UnicodeError) as error:
        raise RowRefused(row, "", error) from error


def _unwritable(connection: "PgConnection", row: Sequence[Any]) -> int:
    """Which value of a row the library cannot write; -1: all can be written."""
    psycopg = psycopg_module("PostgresSink")
    writer = psycopg.adapt.Transformer(connection)
    for place, value in enumerate(row):
        try:
            writer.get_dumper(value, psycopg.adapt.PyFormat.TEXT).dump(value)
        except Exception:
            return place
    return -1


class RowRefused(Exception):
    """A row that the table does not take; the cause is PostgreSQL's own error."""

    def __init__(self, row: Sequence[Any], column: str, error: Exception) -> None:
        super().__init__(row, column, error)
        self.row = row
        self.column = column
        self.error = error


@contextmanager
def blaming(database: SinkDatabase, table: str, columns: Sequence[str] = ()) -> Iterator[None]:
    """Errors of the server within the block as errors for the user; any error closes."""
    try:
        yield
    except (psycopg_module(database.whose).Error, RowRefused) as error:
        database.close()
        raise blamed(database, table, columns, error) from error
    except BaseException:
        database.close()
        raise


def blamed(database: SinkDatabase, table: str, columns: Sequence[str], error: Exception) -> Any:
    """The error for the user: what was refused, why, and what to do."""
    whose = database.whose
    if isinstance(error, RowRefused):
        at = f"column {error.column!r} of " if error.column else ""
        value = ""
        if error.column in columns:
            value = f"{shown(error.row[columns.index(error.column)])} in "
        elif error.row:
            value = "a value in "
        if any(item is NOT_SENT for item in error.row):
            return ConnectorError(
                f"{whose}: {at}{table} cannot be written, because the source's server did not send "
                f"the value ({shown(error.row)}); {SEND_ALL}"
            )
        return ConnectorError(
            f"{whose}: {at}{table} does not take {value}the row {shown(error.row)}: "
            f"{first_line(error.error)}; mend the records or the table"
        )
    state = getattr(error, "sqlstate", None)
    if state in ("55P03", "57014"):
        return DatabaseUnready(
            f"{whose} waits for {table} and gives up: {first_line(error)}"
            f"{_holders(database, table)}; end what holds it up, or raise lock_timeout_ms or "
            f"statement_timeout_ms"
        )
    if state is None or is_lost(error) or state[:2] in ("40", "53", "57", "58"):
        return database.unready(error)
    diag = getattr(error, "diag", None)
    column = getattr(diag, "column_name", None)
    at = f"column {column!r} of " if column else ""
    if state in _OTHER_TABLE:
        return TableUnfit(
            f"{whose}: {table} is not the table any more that the rows were written for: "
            f"{first_line(error)}; bring it back, or start the job without its checkpoint"
        )
    return ConnectorError(
        f"{whose}: {at}{table} does not take the rows: {first_line(error)}; mend the records, the "
        f"table or its permissions"
    )


def _holders(database: SinkDatabase, table: str) -> str:
    """Who has locks on the table, as far as that can be seen."""
    found = database.look(_HOLDERS, quoted_table(table))
    return f"; locks are held by {', '.join(holder for (holder,) in found)}" if found else ""
