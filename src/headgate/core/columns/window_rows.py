"""The rows that a window join holds: batches by slice of time, first in memory, then in state.

New rows wait in memory as they came. Before a barrier, and if they are too many, they are written
to keyed state, one entry for each slice, side and key group, under a key that stands for the group:
so each backend keeps them, and another number of tasks shares them anew. Laws: a row is in memory
or in state, never in both; before a snapshot all are in state. What was restored remembers up to
which event time its windows had fired.
"""

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Final

import numpy as np
import pyarrow as pa

from headgate.base.checkpoints import OPERATOR, StateShape, TypeShape
from headgate.base.elements import MIN_WATERMARK_MS
from headgate.core.chain.keyed_context import KeyedContext
from headgate.core.columns.batches import SchemaCheck, read, written
from headgate.core.columns.keys import KeyGroups, Numbers
from headgate.core.state.backend import StateSpec
from headgate.core.state.keys import groups_of
from headgate.core.state.many_keys import int_groups
from headgate.functions.context import TaskInfo

ROWS: Final = StateSpec("rows of a join", "list", namespaced=True)
"""``(side, bytes)`` by key group and slice; see ``written``."""
SLICES: Final = StateSpec("slices of a join", "value")
"""By key group: up to when its windows have fired, and the bytes of each slice."""
SHAPE: Final = "windows of a join"
MEMORY_BYTES: Final = 64 * 1024 * 1024
"""Rows that wait in memory at most, and those that are read from state at a time, by key groups."""

Rows = tuple[list[pa.RecordBatch], list[pa.RecordBatch]]
"""Rows of the left and of the right."""
Portion = tuple[Sequence[int] | None, int]
"""Key groups (None: all of the task, and what is in memory), and up to when they have fired."""


class WindowRows:
    """Rows of one task. ``slices`` says how time is cut: a program with other slices is refused."""

    def __init__(
        self, keys: tuple[Sequence[str], Sequence[str]], schemas: Sequence[pa.Schema | None]
    ) -> None:
        self._keys = keys
        self.checks = [SchemaCheck(schema) for schema in schemas]
        self._waiting: dict[int, Rows] = {}
        """In memory, by slice."""
        self._bytes = 0
        self._sizes: dict[int, dict[int, int]] = {}
        """In state: bytes of each slice of each key group."""
        self._fired: dict[int, int] = {}
        """Up to when the windows of restored key groups have fired, if event time is earlier."""
        self._unwritten: set[int] = set()
        """Key groups whose entry of ``SLICES`` has changed."""

    def open(self, keyed: KeyedContext, task: TaskInfo, slices: str) -> None:
        """Take over what was restored; raises StateChanged."""
        shape = StateShape(SHAPE, "rows", (TypeShape(f"headgate.columns: {slices}"),), OPERATOR)
        keyed.shapes.compare(shape)
        keyed.shapes.enter(shape)
        most = task.max_parallelism
        self._groups = [KeyGroups(names, most) for names in self._keys]
        self._own = groups_of(task.subtask, task.parallelism, most)
        self._cursor = keyed.cursor
        self._rows = keyed.backend.list_state(ROWS)
        self._slices = keyed.backend.value_state(SLICES)
        self._stands_for = _stand_ins(self._own, most)
        for group in self._own:
            self._cursor.key = self._stands_for[group]
            if (entry := self._slices.value()) is not None:
                fired_ms, sizes = entry
                self._sizes[group] = dict(sizes)
                self._fired[group] = fired_ms

    @property
    def waiting_bytes(self) -> int:
        """Size of the rows in memory."""
        return self._bytes

    def slices(self) -> list[int]:
        """The slices that hold rows, in order."""
        found = set(self._waiting)
        for sizes in self._sizes.values():
            found.update(sizes)
        return sorted(found)

    def add(self, side: int, slice_ms: int, batch: pa.RecordBatch) -> None:
        """Rows of one slice."""
        self._waiting.setdefault(slice_ms, ([], []))[side].append(batch)
        self._bytes += batch.nbytes
        if self._bytes > MEMORY_BYTES:
            self.write()

    def groups_of(self, side: int, batch: pa.RecordBatch) -> Numbers:
        """The key group of each row."""
        return self._groups[side].of_rows(batch)

    def fired_ms(self, side: int, batch: pa.RecordBatch, watermark_ms: int) -> Numbers | int:
        """Up to when the windows of each row have fired; a number if it is the same for all."""
        self._forget_fired(watermark_ms)
        if not self._fired:
            return watermark_ms
        fired = np.full(self._own.stop - self._own.start, watermark_ms, dtype=np.int64)
        for group, fired_ms in self._fired.items():
            fired[group - self._own.start] = max(fired_ms, watermark_ms)
        return fired[self.groups_of(side, batch).astype(np.int64) - self._own.start]

    def portions(
        self, slices: Iterable[int], watermark_ms: int, more: Iterable[int] = ()
    ) -> list[Portion]:
        """Parts of these slices that fit in memory, each with one time up to which it has fired.

        ``watermark_ms``: the event time up to which windows have fired since the start. What waits
        in memory is written first if there is more than one part. ``more``: key groups that are to
        be in a part also if they hold nothing.
        """
        self._forget_fired(watermark_ms)
        wanted = list(slices)
        if not self._fired and sum(map(self._size, self._sizes, repeat(wanted))) <= MEMORY_BYTES:
            return [(None, watermark_ms)]
        self.write()
        parts: dict[int, list[list[int]]] = {}
        filled: dict[int, int] = {}
        for group in sorted({*self._sizes, *more}):
            size = self._size(group, wanted)
            fired_ms = max(watermark_ms, self._fired.get(group, watermark_ms))
            if fired_ms not in parts or filled[fired_ms] + size > MEMORY_BYTES:
                parts.setdefault(fired_ms, []).append([])
                filled[fired_ms] = 0
            parts[fired_ms][-1].append(group)
            filled[fired_ms] += size
        return [(groups, fired_ms) for fired_ms, lists in parts.items() for groups in lists]

    def read(self, slice_ms: int, groups: Sequence[int] | None) -> Rows:
        """The rows of a slice, in these key groups; None: of all, and what is in memory."""
        found: Rows = ([], [])
        for group in self._sizes if groups is None else groups:
            if slice_ms in self._sizes.get(group, ()):
                self._move_to(group, slice_ms)
                for side, data in self._rows.get():
                    found[side].append(self.checks[side].fit(read(data), "its state holds"))
        self._cursor.namespace = None
        if groups is None and slice_ms in self._waiting:
            for side, batches in enumerate(self._waiting[slice_ms]):
                found[side].extend(batches)
        return found

    def take(self, slice_ms: int, groups: Sequence[int] | None) -> Rows:
        """Read the rows of a slice, as ``read`` does, and drop them."""
        found = self.read(slice_ms, groups)
        if groups is None:
            self.drop(slice_ms)
        else:
            for group in groups:
                self._clear(group, slice_ms)
        return found

    def drop(self, slice_ms: int) -> None:
        """Forget a slice."""
        for group in list(self._sizes):
            self._clear(group, slice_ms)
        for batches in self._waiting.pop(slice_ms, ()):
            self._bytes -= sum(batch.nbytes for batch in batches)

    def write(self) -> None:
        """All that waits in memory to state."""
        for slice_ms, sides in self._waiting.items():
            for side, batches in enumerate(sides):
                if batches:
                    self._write(side, slice_ms, joined(batches))
        self._waiting.clear()
        self._bytes = 0
        self._cursor.namespace = None

    def before_snapshot(self, watermark_ms: int) -> None:
        """All that is to be kept to state."""
        self.write()
        self._forget_fired(watermark_ms)
        for group in self._unwritten | self._sizes.keys():
            self._cursor.key = self._stands_for[group]
            if sizes := self._sizes.get(group):
                fired_ms = max(watermark_ms, self._fired.get(group, MIN_WATERMARK_MS))
                self._slices.update((fired_ms, dict(sizes)))  # a snapshot may still read it
            else:
                self._slices.clear()
        self._unwritten.clear()

    def _write(self, side: int, slice_ms: int, batch: pa.RecordBatch) -> None:
        groups = self.groups_of(side, batch)
        order = np.argsort(groups, kind="stable")
        sorted_groups = groups[order]
        begins = np.flatnonzero(np.diff(sorted_groups, prepend=-1))
        rows = batch.take(pa.array(order))
        for begin, end in zip(begins, [*begins[1:], len(order)], strict=True):
            group = int(sorted_groups[begin])
            data = written(rows.slice(int(begin), int(end - begin)))
            self._move_to(group, slice_ms)
            self._rows.add((side, data))
            sizes = self._sizes.setdefault(group, {})
            sizes[slice_ms] = sizes.get(slice_ms, 0) + len(data)
            self._unwritten.add(group)

    def _size(self, group: int, slices: Iterable[int]) -> int:
        sizes = self._sizes.get(group, {})
        return sum(sizes.get(slice_ms, 0) for slice_ms in slices)

    def _clear(self, group: int, slice_ms: int) -> None:
        sizes = self._sizes.get(group, {})
        if sizes.pop(slice_ms, None) is None:
            return
        self._move_to(group, slice_ms)
        self._rows.clear()
        self._cursor.namespace = None
        self._unwritten.add(group)
        if not sizes:
            del self._sizes[group]

    def _move_to(self, group: int, slice_ms: int) -> None:
        self._cursor.key, self._cursor.namespace = self._stands_for[group], slice_ms

    def _forget_fired(self, watermark_ms: int) -> None:
        if self._fired:
            still = {group: at for group, at in self._fired.items() if at > watermark_ms}
            self._fired = still


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches of one schema as one; their dictionaries may differ."""
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()
    return table.to_batches(max_chunksize=len(table))[0]


def _stand_ins(groups: range, max_parallelism: int) -> dict[int, int]:
    """For each key group the least number that, as a key, belongs to it."""
    found: dict[int, int] = {}
    begin, size = 0, max_parallelism
    while len(found) < len(groups):
        numbers = np.arange(begin, begin + size, dtype=np.int64)
        for number, group in zip(
            numbers.tolist(), int_groups(numbers, max_parallelism).tolist(), strict=True
        ):
            if group in groups:
                found.setdefault(group, number)
        begin += size
    return found
