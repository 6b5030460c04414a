"""Sources of generated records for examples, tests and benchmarks.

``NumberSequenceSource`` cuts a range of numbers into contiguous splits of nearly equal length.
``DataGeneratorSource`` calls a user's function with an index: task *i* of *n* makes the indices
i, i + n, i + 2n …, so that all tasks advance together when event times follow from the index.
Law: every number and every index below the count comes exactly once; within any period a
rate-limited source makes at most rate · period records plus a burst.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.base.elements import Record
from headgate.base.errors import PlanInvalid
from headgate.connectors.checks import AMOUNT, Check, check_settings, optional
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.user_function import UserFunction
from headgate.core.operators.record_loops import ResultLoop
from headgate.functions.context import ConnectorContext
from headgate.functions.function import MapFunction
from headgate.functions.source import Source, SplitLag, SplitReader
from headgate.functions.type_variables import OUT


@dataclass(frozen=True)
class NumberSequenceSource(Source[int]):
    """The numbers from ``start`` to ``end``, both included."""

    start: int
    end: int

    bounded = True
    untimed = True
    finds_more = False

    def __post_init__(self) -> None:
        if self.start > self.end:
            raise PlanInvalid(
                f"NumberSequenceSource: start {self.start} is greater than end {self.end}; "
                f"swap them if the sequence is meant to have numbers"
            )

    @property
    def default_name(self) -> str:
        return f"numbers {self.start} to {self.end}"

    def splits(self, parallelism: int) -> Sequence[range]:
        whole = range(self.start, self.end + 1)
        count = min(parallelism, len(whole))
        cuts = [len(whole) * cut // count for cut in range(count + 1)]
        return [whole[cuts[part] : cuts[part + 1]] for part in range(count)]

    def open(
        self, split: object, position: object, context: ConnectorContext
    ) -> "NumberSequenceReader":
        assert isinstance(split, range), split
        return NumberSequenceReader(split, position)


class NumberSequenceReader(SplitReader):
    """Hands out slices of a range. The position is the next number."""

    def __init__(self, numbers: range, position: object) -> None:
        self._next = numbers.start
        self._stop = numbers.stop
        if position is not None:
            assert isinstance(position, int), position
            self._next = position

    def poll(self, limit: int) -> list[int] | None:
        first = self._next
        if first >= self._stop:
            return None
        self._next = min(first + limit, self._stop)
        return list(range(first, self._next))

    def wait_ms(self) -> float:
        return 0.0

    def position(self) -> int:
        return self._next

    def lag(self) -> SplitLag:
        return SplitLag(records=self._stop - self._next)


BURST_S: Final = 0.1
"""What a reader that was held up may make good at once, as a stretch of time."""
GRAIN_S: Final = 0.001
"""High rates are handed out in portions of this much time: a call per list, not per record."""


@dataclass(frozen=True)
class DataGeneratorSource(Source[OUT]):
    """``generator_function(index)`` for the indices 0, 1, 2 … up to ``count``, or without end.

    The function may also be an object with ``map(index)`` and perhaps ``open`` and ``close``.
    ``records_per_second`` is the rate of the whole source; its tasks share it evenly.
    """

    generator_function: Callable[[int], OUT] | MapFunction[int, OUT]
    count: int | None = None
    records_per_second: float | None = None
    clock: Callable[[], float] = time.monotonic

    default_name = "generator"
    untimed = True
    finds_more = False

    def __post_init__(self) -> None:
        if hasattr(self.generator_function, "initialize_state"):
            raise PlanInvalid(
                "DataGeneratorSource: the generator function has initialize_state, and its records "
                "must follow from their index alone; keep state in a function after the source"
            )
        at_least_0 = Check("0 or more", lambda count: count >= 0)
        checks = {"count": optional(at_least_0), "records_per_second": optional(AMOUNT)}
        check_settings(self, checks)

    @property
    def bounded(self) -> bool:
        return self.count is not None

    def splits(self, parallelism: int) -> Sequence["IndexSplit"]:
        tasks = parallelism if self.count is None else min(parallelism, self.count)
        return [IndexSplit(first=task, step=tasks) for task in range(tasks)]

    def open(
        self, split: object, position: object, context: ConnectorContext
    ) -> "DataGeneratorReader":
        assert isinstance(split, IndexSplit), split
        assert isinstance(context, OperatorContext), context
        rate = self.records_per_second
        pace = None if rate is None else GeneratorPace(rate / split.step, self.clock)
        first = split.first
        if position is not None:
            assert isinstance(position, int), position
            first = position
        user_function = UserFunction(self.generator_function, "map")
        try:
            user_function.open(context)
        except BaseException:
            user_function.close()
            raise
        return DataGeneratorReader(user_function, first, split.step, self.count, pace)


@dataclass(frozen=True)
class IndexSplit:
    """Every ``step``-th index from ``first`` on; step is also the number of splits."""

    first: int
    step: int


class DataGeneratorReader(SplitReader):
    """Makes the records of one split. The position is the next index."""

    gives_away = True

    def __init__(
        self,
        user_function: UserFunction,
        first: int,
        step: int,
        count: int | None,
        pace: "GeneratorPace | None",
    ) -> None:
        self._user_function = user_function
        self._loop = ResultLoop(user_function.call)
        self._next = first
        self._step = step
        self._count = count
        self._pace = pace

    def poll(self, limit: int) -> list[Record] | None:
        first, step, left = self._next, self._step, self._left()
        if left is not None:
            if left <= 0:
                return None
            limit = min(limit, left)
        if self._pace is not None:
            limit = self._pace.take(limit)
        end = first + limit * step
        records = self._loop.results(range(first, end, step))
        self._next = end
        return records

    def wait_ms(self) -> float:
        return 0.0 if self._pace is None else self._pace.wait_ms()

    def position(self) -> int:
        return self._next

    def lag(self) -> SplitLag | None:
        left = self._left()
        return None if left is None else SplitLag(records=max(0, left))

    def close(self) -> None:
        self._user_function.close()

    def _left(self) -> int | None:
        """Records that are still to be made; None: without end."""
        return None if self._count is None else -((self._next - self._count) // self._step)


class GeneratorPace:
    """A bucket that fills at a rate. Law: it never holds more than one burst."""

    def __init__(self, per_second: float, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._clock = clock
        self._portion = max(1.0, per_second * GRAIN_S)
        self._burst = max(self._portion, per_second * BURST_S)
        self._filled = self._portion
        self._wanted = self._portion
        self._seen = clock()

    def take(self, limit: int) -> int:
        """How many of ``limit`` records may be made now; 0 if not even a portion is due."""
        self._fill()
        self._wanted = min(self._portion, limit)
        if self._filled < self._wanted:
            return 0
        taken = min(limit, int(self._filled))
        self._filled -= taken
        return taken

    def wait_ms(self) -> float:
        """Until a portion is due; at least a grain, for what comes late is made good."""
        self._fill()
        missing = self._wanted - self._filled
        return 1000 * max(GRAIN_S, missing / self._per_second)

    def _fill(self) -> None:
        now = self._clock()
        self._filled = min(self._burst, self._filled + (now - self._seen) * self._per_second)
        self._seen = now
