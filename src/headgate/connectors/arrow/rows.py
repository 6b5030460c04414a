"""From Arrow batches to rows, a slice of a batch at a time.

Structs become rows, maps become dicts, timestamps with a time zone become datetimes that know it;
everything else is what pyarrow makes of it. Law: different moments are different datetimes.
"""

from collections.abc import Callable, Sequence
from datetime import timezone
from typing import Any

import pyarrow as pa

from headgate.api.row import Row, named_row, rows_of

Convert = Callable[[Any], Any]


class RowMaker:
    """Makes rows of batches that have as many columns as there are names."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._schema: pa.Schema | None = None
        self._converts: list[Convert | None] = []

    def rows(self, batch: pa.RecordBatch) -> list[Row]:
        if batch.schema is not self._schema:
            self._schema = batch.schema
            self._converts = [value_converter(field.type) for field in batch.schema]
        columns = [
            column.to_pylist() if convert is None else list(map(convert, column.to_pylist()))
            for column, convert in zip(batch.columns, self._converts, strict=True)
        ]
        return rows_of(self._names, columns)


def value_converter(kind: pa.DataType) -> Convert | None:
    """Turns what pyarrow makes of a value into what a row holds; None: it is that already."""
    if pa.types.is_struct(kind):
        return _struct_converter(kind)
    if pa.types.is_map(kind):
        turns = value_converter(kind.key_type), value_converter(kind.item_type)
        return _to_dict if turns == (None, None) else _map_converter(*turns)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        item = value_converter(kind.value_type)
        return None if item is None else _list_converter(item)
    if pa.types.is_timestamp(kind) and kind.tz not in {None, "UTC"}:
        return _to_moment
    return None


def _to_moment(value: Any) -> Any:
    """With an offset, if the clock of its zone shows it a second time.

    Two datetimes of one zone are equal if its clock shows the same, however far they are apart.
    """
    if value is None or not value.fold:
        return value
    return value.replace(tzinfo=timezone(value.utcoffset()), fold=0)


def _struct_converter(kind: pa.DataType) -> Convert:
    fields = [(field.name, value_converter(field.type)) for field in kind]
    names = [name for name, _ in fields]

    def to_row(value: Any) -> Row | None:
        if value is None:
            return None
        return named_row(
            names,
            [value[name] if turn is None else turn(value[name]) for name, turn in fields],
        )

    return to_row


def _to_dict(value: Any) -> Any:
    return None if value is None else dict(value)


def _map_converter(key_turn: Convert | None, item_turn: Convert | None) -> Convert:
    turn_key, turn_item = key_turn or _same, item_turn or _same

    def to_dict(value: Any) -> Any:
        if value is None:
            return None
        return {turn_key(key): turn_item(item) for key, item in value}

    return to_dict


def _same(value: Any) -> Any:
    return value


def _list_converter(item: Convert) -> Convert:
    return lambda value: None if value is None else list(map(item, value))
