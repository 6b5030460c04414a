"""A sequence of whole numbers as a source: examples, tests and benchmarks start with it.

The sequence is cut into contiguous ranges of nearly equal length, one for each task. Law: over all
splits every number from start to end comes exactly once, and in order within a split.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.api.source import Source, SplitReader
from headgate.base.errors import PlanInvalid
from headgate.core.chain.context import OperatorContext


@dataclass(frozen=True)
class NumberSequenceSource(Source):
    """The numbers from ``start`` to ``end``, both included."""

    start: int
    end: int

    bounded = True
    untimed = True
    finds_more = False

    def __post_init__(self) -> None:
        if self.start > self.end:
            raise PlanInvalid(
                f"NumberSequenceSource: start {self.start} lies behind end {self.end}; "
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
        self, split: object, position: object, context: OperatorContext
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

    def close(self) -> None:
        pass
