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

from headgate.base.elements import Key, Record
from headgate.base.errors import BatchUnfit
from headgate.core.columns.batches import column_of, is_unfit
from headgate.core.egress.router import Split
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


class ColumnPartitioner:
    """Routes the rows of batches by their key groups, a batch at a time; see ``Router``.

    Law: ``split`` gives every row to exactly one channel, that of its key group, and keeps the
    order within each; a batch whose rows all go to one channel is not copied. One without keys goes
    to the first channel, if its reader knows what to do with it.
    """

    is_broadcast = False

    def __init__(
        self,
        names: Sequence[str],
        max_parallelism: int = 128,
        reader: str = "",
        reader_takes_all: bool = False,
    ) -> None:
        """``reader``: the operator on the keyed stream, which errors name.

        ``reader_takes_all``: it has a policy for batches whose keys cannot be taken; they go to the
        first channel as they are.
        """
        self._names = tuple(names)
        self._groups = KeyGroups(names, max_parallelism)
        self._max_parallelism = max_parallelism
        self._reader = reader
        self._reader_takes_all = reader_takes_all
        self._channels = 0

    def set_up(self, channels: int) -> None:
        assert 0 < channels <= self._max_parallelism, "more channels than key groups"
        self._channels = channels

    def pick(self, record: Record) -> int:
        raise AssertionError("the rows of a batch have no single channel")

    def split(self, records: list[Record], timestamps: list[int | None] | None) -> Split:
        if self._channels == 1:
            if not self._reader_takes_all:
                for batch in records:
                    if not is_unfit(batch):
                        self._check(batch)
            return [(0, records, timestamps)]
        parts: list[list[Record]] = [[] for _ in range(self._channels)]
        times: list[list[int | None]] = [[] for _ in range(self._channels)]
        for place, batch in enumerate(records):
            for channel, part in self._parts(batch):
                parts[channel].append(part)
                if timestamps is not None:
                    times[channel].append(timestamps[place])
        return [
            (channel, part, None if timestamps is None else times[channel])
            for channel, part in enumerate(parts)
            if part
        ]

    def _check(self, batch: Record) -> None:
        try:
            for name in self._names:
                key_column(batch, name)
        except BatchUnfit as error:
            raise error.at(self._reader) from None

    def _parts(self, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        """The rows of each channel that gets any."""
        if is_unfit(batch):
            return [(0, batch)]
        try:
            groups = self._groups.of_rows(batch)
        except BatchUnfit as error:
            if self._reader_takes_all:
                return [(0, batch)]
            raise error.at(self._reader) from None
        if not len(groups):
            return []
        channels = self.channels_of(groups)
        counts = np.bincount(channels, minlength=self._channels)
        if counts.max() == len(groups):
            return [(int(channels[0]), batch)]
        # Few channels are small numbers, which numpy sorts without comparing them.
        taken = batch.take(pa.array(np.argsort(channels, kind="stable")))
        ends = counts.cumsum()
        return [
            (channel, taken.slice(int(end - count), int(count)))
            for channel, (end, count) in enumerate(zip(ends, counts, strict=True))
            if count
        ]

    def channels_of(self, groups: Numbers) -> Numbers:
        """The channel of each group: each channel owns a range of groups, as for records."""
        channels = groups.astype(np.int64) * self._channels // self._max_parallelism
        return channels.astype(np.uint8 if self._channels <= 256 else np.uint16)
