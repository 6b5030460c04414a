"""Data files of a Delta table: rows by partition, and what the log says of a file.

Partition values, folders and statistics are written as Delta's protocol has them. Law: statistics
are left out where they could be wrong for a reader: for texts that would have to be cut, for floats
and for nested columns.
"""

import datetime
import decimal
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from headgate.base.errors import RecordUnfit

NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
FOLDER_CHARS: Final = 100
"""Names of folders are cut: the log says which value a file has, not its folder."""
STATISTICS_CHARS: Final = 32
"""Longer texts are left out of statistics."""

Partition = tuple[tuple[str, str | None], ...]
"""Columns and their values, as the log has them."""


@dataclass(frozen=True, slots=True)
class DeltaDataFile:
    """A file that waits to be named in the log; what an appending sink keeps in checkpoints."""

    path: str
    size: int
    partition: Partition
    written_ms: int
    statistics: str
    columns: tuple[tuple[str, str], ...]
    """Names and types, also of the partition."""


def rows_by_partition(
    rows: pa.Table, columns: Sequence[str], operator: str
) -> Iterator[tuple[Partition, pa.Table]]:
    """The rows of each partition, without the columns that it stands for."""
    if not columns:
        yield (), rows
        return
    place = "\0place"
    numbered = rows.select(list(columns)).append_column(place, pa.array(range(rows.num_rows)))
    groups = numbered.group_by(list(columns)).aggregate([(place, "list")])
    others = rows.drop_columns(list(columns))
    for group in groups.to_pylist():
        values = tuple(
            (column, partition_text(group[column], column, operator)) for column in columns
        )
        yield values, others.take(pa.array(group[f"{place}_list"]))


def partition_text(value: Any, column: str, operator: str) -> str | None:
    """A value as the log writes it."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case str() if value:
            return value
        case int() | float() | decimal.Decimal():
            return str(value)
        case datetime.datetime() if value.tzinfo is not None:
            moment = value.astimezone(datetime.timezone.utc)
            return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        case datetime.datetime():
            return value.strftime("%Y-%m-%d %H:%M:%S.%f")
        case datetime.date():
            return value.isoformat()
        case _:
            problem = "cannot be the partition of a Delta table; clean the records"
            raise RecordUnfit(operator, column, value, problem)


def partition_folder(partition: Partition) -> str:
    """Where files of a partition stand, as Hive has it; empty: in the table's folder."""
    return "".join(
        f"{quote(column, safe='')[:FOLDER_CHARS]}="
        f"{NULL_FOLDER if value is None else quote(value, safe='')[:FOLDER_CHARS]}/"
        for column, value in partition
    )


def statistics_of(rows: pa.Table) -> str:
    """What the log says of the rows of a file, for readers that leave files out."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in rows.column_names:
        column = rows.column(name)
        if pa.types.is_nested(column.type):
            continue
        nulls[name] = column.null_count
        if column.null_count == len(column) or not _has_order(column.type):
            continue
        bounds = pc.min_max(column).as_py()
        low, high = (_bound(bounds[end]) for end in ("min", "max"))
        if low is not None and high is not None:
            least[name], greatest[name] = low, high
    about = {
        "numRecords": rows.num_rows,
        "minValues": least,
        "maxValues": greatest,
        "nullCount": nulls,
    }
    return json.dumps(about, separators=(",", ":"))


def _has_order(kind: pa.DataType) -> bool:
    """Floats are left out: readers differ about NaN."""
    types = pa.types
    return any(
        is_kind(kind)
        for is_kind in (types.is_integer, types.is_string, types.is_date, types.is_timestamp)
    )


def _bound(value: Any) -> Any:
    match value:
        case int():
            return value
        case str():
            return value if len(value) <= STATISTICS_CHARS else None
        case datetime.datetime() if value.tzinfo is not None:
            return value.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        case datetime.datetime():
            return value.strftime("%Y-%m-%dT%H:%M:%S.%f")
        case datetime.date():
            return value.isoformat()
        case _:
            return None
