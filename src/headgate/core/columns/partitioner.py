"""Routes the rows of batches by the key groups of their columns, a batch at a time.

Law: ``split`` gives every row to exactly one channel, that of its key group, and keeps the order
within each; a batch whose rows all go to one channel is not copied. One without keys goes to the
first channel, if its reader knows what to do with it.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headgate.base.elements import Record
from headgate.base.errors import BatchUnfit
from headgate.core.columns.batches import is_unfit
from headgate.core.columns.keys import KeyGroups, Numbers, key_column
from headgate.core.egress.router import Split


class ColumnPartitioner:
    """Rows with equal keys to the same channel; see ``Router``."""

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
        """As the record's router has it: each channel owns a range of groups."""
        channels = groups.astype(np.int64) * self._channels // self._max_parallelism
        return channels.astype(np.uint8 if self._channels <= 256 else np.uint16)
