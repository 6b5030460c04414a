"""Operators between the two worlds: batches to records, records to batches, partials by key.

Law: each keeps the order of its input. Records that wait for others to fill a batch leave before
any watermark, barrier or end, and at the latest after the buffer timeout.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa

from headgate.base.elements import Bundle, LatencyMarker, Record, StreamStatus, Watermark
from headgate.base.errors import BatchUnfit, RecordUnfit
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.left_out import FailureStreak, LateDrops, RecordFailures
from headgate.core.chain.operator import Operator, Output
from headgate.core.chain.snapshots import OperatorSnapshot
from headgate.core.columns.aggregates import PartialAggregation, PartialRecords, from_python
from headgate.core.columns.batches import batch_in, is_unfit, marked_unfit, unmarked
from headgate.core.columns.keys import Numbers
from headgate.core.columns.times import EventTime
from headgate.core.state.reading import StateReader
from headgate.functions.context import SnapshotMoment

T = TypeVar("T")

PIECE_ROWS: Final = 1024
"""Rows that become records at a time."""
HELD_ROWS: Final = 65_536
"""Partial rows that are held at most before they are folded again."""
HELD_BATCHES: Final = 256
LATE_PARTIALS: Final = "headgate: partial rows that came too late"
"""The side output by which a window operator tells of them; it does not leave the operator."""


class RecordsOperator(Operator):
    """Makes records of the rows of batches; with the times of a column if there is one."""

    def __init__(
        self,
        make: Callable[[Sequence[str]], Record],
        time: EventTime | None = None,
    ) -> None:
        """``make`` gives, for the names of columns, what has ``rows(batch)``."""
        self._make = make
        self._time = time
        self._names: list[str] | None = None
        self._maker: Record = None

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._batches = FittingBatches(context, self.failures)

    def process(self, bundle: Bundle, number: int) -> None:
        for batch, times in self._batches.of(bundle, self._checked):
            for start in range(0, batch.num_rows, PIECE_ROWS):
                part = batch.slice(start, PIECE_ROWS)
                stamps: list[int | None] | None = None
                if times is not None:
                    stamps = times[start : start + PIECE_ROWS].tolist()
                self.output.collect(Bundle(self._maker.rows(part), stamps))

    def _checked(self, batch: Record) -> tuple[pa.RecordBatch, Numbers | None]:
        names = batch_in(batch).schema.names
        times = None if self._time is None else self._time.of(batch)
        if names != self._names:
            self._names, self._maker = list(names), self._make(names)
        return batch, times


class FittingBatches:
    """The batches of bundles that an operator can use; its error policy gets the others."""

    def __init__(self, context: OperatorContext, failures: RecordFailures | None) -> None:
        self._operator = context.operator
        self._streak = None if failures is None else failures.streak()

    def of(self, bundle: Bundle, use: Callable[[Record], T]) -> Iterator[T]:
        """What ``use`` makes of each; if it raises BatchUnfit, it must not have changed a thing."""
        for batch in bundle.records:
            try:
                made = use(batch)
            except BatchUnfit as error:
                if self._streak is None:
                    raise error.at(self._operator) from None
                whole = unmarked(batch) if is_unfit(batch) else batch
                self._streak.failed(error.at(self._operator), whole)
                continue
            if self._streak is not None:
                self._streak.passed()
            yield made


class BufferingOperator(Operator):
    """Base of operators that buffer something for a while; ``flush`` sends it.

    Law: nothing is held across a watermark, a barrier or the end, nor longer than the buffer
    timeout; 0: not across a bundle, -1: the time does not matter.
    """

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._is_timed = self._over = False

    def process(self, bundle: Bundle, number: int) -> None:
        self.add(bundle)
        if self._timeout_ms == 0:
            self.flush()
        elif self._timeout_ms > 0 and not self._is_timed:
            self._is_timed = True
            self.context.later(self._timeout_ms, self._tick)

    def add(self, bundle: Bundle) -> None:
        """Take a bundle in; what is enough may leave."""
        raise NotImplementedError

    def flush(self) -> None:
        """Send all that is held."""
        raise NotImplementedError

    def watermark_advanced(self, watermark: Watermark) -> None:
        self.flush()
        super().watermark_advanced(watermark)

    def status_changed(self, status: StreamStatus) -> None:
        self.flush()
        super().status_changed(status)

    def before_barrier(self, moment: SnapshotMoment) -> None:
        self.flush()

    def finish(self) -> None:
        self.flush()

    def close(self) -> None:
        self._over = True

    def _tick(self) -> None:
        self._is_timed = False
        if not self._over:
            self.flush()


class BatchesOperator(BufferingOperator):
    """Collects records into batches of so many rows; ``make`` gives a batch for a list of them.

    Their times are lost, as a batch has one: whoever needs them takes a column.
    """

    def __init__(
        self,
        make: Callable[[str], Callable[[list[Record]], pa.RecordBatch]],
        rows: int,
        timeout_ms: int,
    ) -> None:
        """``make`` is given the name of the operator, for errors."""
        super().__init__(timeout_ms)
        self._make = make
        self._rows = rows
        self._records: list[Record] = []

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._batch = self._make(context.operator)
        self._streak = None if self.failures is None else self.failures.streak()

    def add(self, bundle: Bundle) -> None:
        self._records.extend(bundle.records)
        while len(self._records) >= self._rows:
            self._send(self._rows)

    def flush(self) -> None:
        if self._records:
            self._send(len(self._records))

    def _send(self, count: int) -> None:
        records = self._records[:count]
        try:
            batches = [self._batch(records)]
        except RecordUnfit:
            if self._streak is None:
                raise
            fitting = self._fitting(records, self._streak)
            batches = [self._batch(fitting)] if fitting else []
        del self._records[:count]
        if batches:
            self.output.collect(Bundle(batches))

    def _fitting(self, records: list[Record], streak: FailureStreak) -> list[Record]:
        """The records that fit, each tried alone; the error policy gets the others."""
        found = []
        for record in records:
            try:
                self._batch([record])
            except RecordUnfit as error:
                streak.unfit(record, error)
            else:
                streak.passed()
                found.append(record)
        return found


class PartialsOperator(BufferingOperator):
    """Folds batches to partial rows, and those of several batches once more, before they travel.

    What has to be merged in Python after the exchange is then a row for each key and timeout, not
    for each key and batch.
    """

    def __init__(self, aggregation: PartialAggregation, timeout_ms: int = 0) -> None:
        super().__init__(timeout_ms)
        self._aggregation = aggregation
        self._held: list[pa.RecordBatch] = []
        self._rows = 0

    def add(self, bundle: Bundle) -> None:
        for batch in bundle.records:
            if not _has_rows(batch):
                continue
            try:
                partial = self._aggregation.partial(batch)
            except BatchUnfit:
                if not isinstance(batch, pa.RecordBatch):
                    raise
                self.flush()  # for the operator after it, which finds the same and has a policy
                self.output.collect(Bundle([marked_unfit(batch)]))
                continue
            self._held.append(partial)
            self._rows += partial.num_rows
        if self._rows >= HELD_ROWS or len(self._held) >= HELD_BATCHES:
            self._fold()
            if self._rows > HELD_ROWS // 2 or len(self._held) >= HELD_BATCHES:
                self.flush()  # many keys: folding again would gain little

    def flush(self) -> None:
        if self._held:
            self._fold()
            batches, self._held, self._rows = self._held, [], 0
            self.output.collect(Bundle(batches))

    def _fold(self) -> None:
        if len(self._held) > 1:
            self._held = self._aggregation.folded(self._held)
            self._rows = sum(batch.num_rows for batch in self._held)


def _has_rows(batch: Record) -> bool:
    return not isinstance(batch, pa.RecordBatch) or bool(batch.num_rows)


class MergedPartialsOperator(Operator):
    """Around an operator of records that merges partials by key: batches in, batches out.

    All that is not about records goes to the operator within: state, timers, barriers, ends.
    """

    def __init__(
        self,
        make: Callable[[], Operator],
        records: PartialRecords,
        results: "ResultBatches",
        is_timed: bool,
        aggregation: PartialAggregation | None = None,
        late_tag: str | None = None,
    ) -> None:
        """``is_timed``: a partial record has the time of its slice, which comes after its key.

        ``aggregation``: what comes are rows, which are folded here. Then those that are too late
        may go to a side output, ``late_tag``; otherwise they are counted and dropped.
        """
        self._inner = make()
        self._records = records
        self._results = results
        self._is_timed = is_timed
        self._aggregation = aggregation
        self._late_tag = late_tag

    def set_up(self, output: Output) -> None:
        super().set_up(output)
        self._inner.reuses_objects = True  # partial records are tuples that nobody changes
        self._inner.failures = self.failures
        self._batched = BatchedOutput(output, self._results)
        self._inner.set_up(self._batched)

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._inner.open(replace(context, record_type=self._records))
        self._batches = FittingBatches(context, self.failures)
        if self._is_timed:  # its metric takes the place of that of the operator within
            self.late = LateDrops(context)

    def process(self, bundle: Bundle, number: int) -> None:
        for batch, partial in self._batches.of(bundle, self._folded):
            self._results.learn(partial)
            records = self._records.records(partial)
            times = [record[1] for record in records] if self._is_timed else None
            self._inner.process(Bundle(records, times), 0)
            if self._batched.late:
                self._take_late(batch, partial, records)

    def _folded(self, batch: Record) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """A batch, and the partial rows that it is or has."""
        if self._aggregation is not None or is_unfit(batch):
            return batch, self._records.aggregation.partial(batch)
        return batch, batch

    def _take_late(
        self, batch: pa.RecordBatch, partial: pa.RecordBatch, records: list[Record]
    ) -> None:
        """The operator within has found that some of these partial records are too late."""
        # A partial record is known by its key and its first time.
        late, self._batched.late = {record[:2] for record in self._batched.late}, []
        places = [place for place, record in enumerate(records) if record[:2] in late]
        if self._aggregation is None or self._late_tag is None:
            assert self.late is not None and self._inner.late is not None
            counts = partial.column("rows")
            rows = sum(counts[place].as_py() for place in places)
            self.late.add(rows, self._inner.late.last_ms)
            return
        of_rows, of_partials = self._aggregation.numbered(batch, partial)
        late_rows = batch.filter(pa.array(np.isin(of_rows, of_partials[places])))
        self.output.collect_side(self._late_tag, Bundle([late_rows]))

    def watermark_advanced(self, watermark: Watermark) -> None:
        self._inner.watermark_advanced(watermark)

    def status_changed(self, status: StreamStatus) -> None:
        self._inner.status_changed(status)

    def marker_received(self, marker: LatencyMarker) -> None:
        self._inner.marker_received(marker)

    def end_input(self, number: int) -> None:
        self._inner.end_input(number)

    def finish(self) -> None:
        self._inner.finish()

    def before_barrier(self, moment: SnapshotMoment) -> None:
        self._inner.before_barrier(moment)

    def snapshot(self, moment: SnapshotMoment) -> OperatorSnapshot:
        return self._inner.snapshot(moment)

    def checkpoint_completed(self, checkpoint: int) -> None:
        self._inner.checkpoint_completed(checkpoint)

    def checkpoint_aborted(self, checkpoint: int) -> None:
        self._inner.checkpoint_aborted(checkpoint)

    def state_bytes(self) -> int | None:
        return self._inner.state_bytes()

    def state_reader(self) -> StateReader | None:
        return self._inner.state_reader()

    def close(self) -> None:
        self._inner.close()


class ResultBatches:
    """From merged partial records to a batch of the result; see ``PartialRecords``.

    Windows add their bounds: ``size_ms`` before the record's time, or for sessions its own times.
    """

    def __init__(
        self,
        records: PartialRecords,
        names: Sequence[str],
        types: Sequence[pa.DataType | None],
        size_ms: int = 0,
        gap_ms: int = 0,
    ) -> None:
        """``names`` and ``types`` of the columns; a type that is None is that of the values."""
        self._records = records
        self._names = list(names)
        self._types = list(types)
        self._size_ms = size_ms
        self._gap_ms = gap_ms

    def learn(self, partial: pa.RecordBatch) -> None:
        """Types that nobody has declared are those of the first partial batch."""
        if None in self._types:
            found = self._records.types(partial.schema)
            bounds = len(self._types) - len(found)
            width = len(self._records.keys)
            found = [*found[:width], *([None] * bounds), *found[width:]]
            self._types = [kind or other for kind, other in zip(self._types, found, strict=True)]

    def batch(self, records: list[Record], times: list[int | None] | None) -> pa.RecordBatch:
        """Raises BatchUnfit."""
        keys, aggregates = self._records.results(records)
        columns = [*keys, *self._bounds(records, times), *aggregates]
        arrays = [
            self._array(name, values, kind)
            for name, values, kind in zip(self._names, columns, self._types, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, names=self._names)

    def _bounds(self, records: list[Record], times: list[int | None] | None) -> list[list[int]]:
        if self._gap_ms:
            starts, ends = [record[1] for record in records], [record[2] for record in records]
            return [[at * 1000 for at in starts], [(at + self._gap_ms) * 1000 for at in ends]]
        if self._size_ms:
            ends = [(time_ms or 0) + 1 for time_ms in times or ()]
            return [[(at - self._size_ms) * 1000 for at in ends], [at * 1000 for at in ends]]
        return []

    @staticmethod
    def _array(name: str, values: list[Record], kind: pa.DataType | None) -> pa.Array:
        try:
            if kind is not None and pa.types.is_integer(kind) and float in set(map(type, values)):
                raise TypeError("a sum of other numbers came")  # pyarrow would cut them
            return from_python(values, kind)
        except (pa.ArrowException, OverflowError, TypeError) as error:
            problem = str(error).partition("\n")[0]
            raise BatchUnfit(
                f"the values of column {name!r} do not fit {kind or 'one type'} ({problem}); cast "
                f"the column that is aggregated to a wider type first"
            ) from None


class BatchedOutput:
    """What the operator within writes to: its records become batches of the result."""

    def __init__(self, output: Output, results: ResultBatches) -> None:
        self._output = output
        self._results = results
        self.late: list[Record] = []
        """Partial records of windows that came too late, until somebody takes them."""
        self.emit_watermark = output.emit_watermark
        self.emit_status = output.emit_status
        self.emit_marker = output.emit_marker

    @property
    def watermark_ms(self) -> int:
        return self._output.watermark_ms

    @watermark_ms.setter
    def watermark_ms(self, watermark_ms: int) -> None:
        self._output.watermark_ms = watermark_ms

    def collect_side(self, tag: str, bundle: Bundle) -> None:
        if tag == LATE_PARTIALS:
            self.late += bundle.records
        else:
            self._output.collect_side(tag, bundle)

    def collect(self, bundle: Bundle) -> None:
        """In batches of a bounded size, without times: a batch has the results of many windows."""
        records, times = bundle.records, bundle.timestamps
        for start in range(0, len(records), HELD_ROWS):
            end = start + HELD_ROWS
            part = self._results.batch(records[start:end], times and times[start:end])
            self._output.collect(Bundle([part]))
