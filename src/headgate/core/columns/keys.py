"""Keys in columns: to which key group each row belongs, without a Python step for each row.

Law: a row has the group that ``key_by`` on records gives to the same key, so that state and tasks
agree between the two worlds. Whole numbers are hashed as columns; of other kinds each distinct
value of a batch is hashed once. Several columns make a tuple, one column is the value itself. A
null is no key.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from headgate.base.elements import Key
from headgate.base.errors import BatchUnfit
from headgate.core.columns.batches import column_of
from headgate.core.state.keys import key_group
from headgate.core.state.many_keys import Numbers as Numbers
from headgate.core.state.many_keys import int_groups

MEMO_KEYS: Final = 65_536


class KeyGroups:
    """Finds the key groups of the rows of batches; remembers those of values that it has met."""

    def __init__(self, names: Sequence[str], max_parallelism: int) -> None:
        self._names = tuple(names)
        self._max_parallelism = max_parallelism
        self._memo: dict[Key, int] = {}

    def of_rows(self, batch: pa.RecordBatch) -> Numbers:
        """A numpy array with a group for each row; raises BatchUnfit."""
        columns = [key_column(batch, name) for name in self._names]
        if len(columns) == 1 and pa.types.is_integer(columns[0].type):
            return int_groups(columns[0].to_numpy(zero_copy_only=False), self._max_parallelism)
        codes, keys = encode(columns)
        return np.array(self._groups(keys), dtype=np.int32)[codes]

    def _groups(self, keys: list[Key]) -> list[int]:
        memo = self._memo
        try:
            return [memo[key] for key in keys]
        except KeyError:
            pass
        if len(memo) + len(keys) > MEMO_KEYS:
            memo.clear()
        most = self._max_parallelism
        found = [memo[key] if key in memo else key_group(key, most) for key in keys]
        memo.update(zip(keys, found, strict=True))
        return found


def key_column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """A column of keys, without a dictionary of its own; raises BatchUnfit."""
    column = column_of(batch, name)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count:
        raise BatchUnfit(
            f"column {name!r} has {column.null_count} nulls in a batch of {batch.num_rows} rows, "
            f"and a key cannot be null; leave such rows out with filter() before key_by()"
        )
    if not is_key_type(column.type):
        raise BatchUnfit(
            f"column {name!r} of type {column.type} cannot be a key; take whole numbers, texts, "
            f"bytes, booleans, dates or decimals, or key_by() records (to_records())"
        )
    return column


def is_key_type(kind: pa.DataType) -> bool:
    """Whether values of a column become the same Python keys as in a row."""
    types = pa.types
    if types.is_dictionary(kind):
        return is_key_type(kind.value_type)
    return any(
        check(kind)
        for check in (
            *(types.is_integer, types.is_string, types.is_large_string, types.is_boolean),
            *(types.is_binary, types.is_large_binary, types.is_date, types.is_decimal),
        )
    )


def encode(columns: Sequence[pa.Array]) -> tuple[Numbers, list[Key]]:
    """A number for each row, and the distinct keys that these are the places of."""
    codes, values = _encode_column(columns[0])
    keys: list[Key] = values if len(columns) == 1 else [(value,) for value in values]
    for column in columns[1:]:
        more, values = _encode_column(column)
        pairs = codes.astype(np.int64) * max(1, len(values)) + more
        found, codes = np.unique(pairs, return_inverse=True)
        keys = [(*keys[pair // len(values)], values[pair % len(values)]) for pair in found.tolist()]
    return codes, keys


def _encode_column(column: pa.Array) -> tuple[Numbers, list[Key]]:
    encoded = column.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    return codes, encoded.dictionary.to_pylist()
