"""Batch on a keyed stream: an operator gets its records key by key, each key's in order of time.

Everything is gathered until the inputs have ended; then key after key is processed as if it were
alone. Law: while the records of a key run, the watermark is the smallest of all times; then its
timers fire with the largest, and its state is gone before the next key begins. So there is state
of one key at a time, in memory, whatever backend the job has. An input without keys is not
gathered: its records are processed as they come, before all others.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, islice
from typing import Final

from headgate.base.elements import (
    MAX_WATERMARK_MS,
    MIN_WATERMARK_MS,
    Bundle,
    Key,
    LatencyMarker,
    Record,
    StreamStatus,
    Watermark,
)
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.keyed_context import KeySelection
from headgate.core.chain.operator import Operator, Output
from headgate.core.chain.snapshots import OperatorSnapshot
from headgate.core.state.memory import MemoryBackends
from headgate.core.state.sorting import SORT_BYTES, KeySorter, SortedRow
from headgate.functions.context import SnapshotMoment

PIECE: Final = 1024


class SortedInput(Operator):
    """Around an operator on a keyed stream.

    ``keys_of`` holds a selector for each input; None: its records have no keys (broadcast).
    """

    def __init__(
        self,
        make: Callable[[], Operator],
        keys_of: Sequence[Callable[[Record], Key] | None],
        limit_bytes: int = SORT_BYTES,
    ) -> None:
        self._inner = make()
        self.inputs = self._inner.inputs
        self._keys_of = keys_of
        self._limit_bytes = limit_bytes
        self._sorter: KeySorter | None = None

    def set_up(self, output: Output) -> None:
        super().set_up(output)
        self._inner.reuses_objects = self.reuses_objects
        self._inner.failures = self.failures
        self._inner.set_up(_RecordsOnly(output))

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._sorter = KeySorter(context.spills, self._limit_bytes)
        self._streak = None if self.failures is None else self.failures.streak()
        self._selections = [
            None
            if key_of is None
            else KeySelection(key_of, context.operator, key_type=context.key_type)
            for key_of in self._keys_of
        ]
        self._inner.open(replace(context, backends=MemoryBackends()))

    def key_selector(self, number: int) -> Callable[[Record], Key] | None:
        return self._keys_of[number]

    def process(self, bundle: Bundle, number: int) -> None:
        assert self._sorter is not None
        selection = self._selections[number]
        if selection is None:
            self._inner.process(bundle, number)
        elif self._streak is None:
            self._sorter.add(selection.keys(bundle.records), bundle, number)
        else:
            bundle, keys = selection.keyed(bundle, self._streak)
            self._sorter.add(keys, bundle, number)

    def watermark_advanced(self, watermark: Watermark) -> None:
        """Time stands still while records are gathered."""

    def status_changed(self, status: StreamStatus) -> None:
        """Nobody waits for a batch."""

    def finish(self) -> None:
        assert self._sorter is not None
        for _, rows in self._sorter.groups():
            self._process_key(rows)
            self._inner.key_ended()
        self._sorter.close()
        for number in range(self.inputs):
            self._inner.end_input(number)
        self._inner.finish()
        self.output.emit_watermark(Watermark(MAX_WATERMARK_MS))

    def snapshot(self, moment: SnapshotMoment) -> OperatorSnapshot:
        # What is gathered stands in no state: a checkpoint without it would lose records.
        raise AssertionError("a batch job takes no checkpoints")

    def close(self) -> None:
        try:
            self._inner.close()
        finally:
            if self._sorter is not None:
                self._sorter.close()

    def _process_key(self, rows: Iterator[SortedRow]) -> None:
        """Stretches of one input at a time; records with and without a time do not mix."""
        for (number, timed), stretch in groupby(rows, key=_kind_of):
            while piece := list(islice(stretch, PIECE)):
                times: list[int | None] | None = [row.time_ms for row in piece] if timed else None
                self._inner.process(Bundle([row.record for row in piece], times), number)


class _RecordsOnly:
    """The output of an operator that is told of times which are only its own."""

    def __init__(self, output: Output) -> None:
        self.watermark_ms = MIN_WATERMARK_MS
        self.collect = output.collect
        self.collect_side = output.collect_side

    def emit_watermark(self, watermark: Watermark) -> None:
        """The time of one key stays here; operators downstream do not learn of it."""

    def emit_status(self, status: StreamStatus) -> None: ...

    def emit_marker(self, marker: LatencyMarker) -> None: ...


def _kind_of(row: SortedRow) -> tuple[int, bool]:
    return row.number, row.time_ms != MIN_WATERMARK_MS
