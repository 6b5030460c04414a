"""Buffer debloating: how long buffers should be, so that what is in flight is bounded in time.

The task looks at its inputs at the settings' period, inside the baton, and tells each debloater
what was consumed, in how much time with something to consume, and how many buffers wait. Law: the
size is never above the segment or below the least of the settings; between, the buffers that wait
hold what is consumed in the target time. It shrinks only on evidence: while something waits, and
when the looks cover enough time. Producers are told only when the change is worth it. Time in which
threads of the worker wait for a core does not count: shorter buffers would cost more CPU, so that
the shorter they were the later they would be consumed.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from headgate.base.settings import ExchangeSettings
from headgate.core.task.inputs import NetworkInput
from headgate.core.task.processors import InputProcessor, Processor


@dataclass(frozen=True, slots=True)
class InputTotals:
    """Totals of an input since its start."""

    consumed_bytes: float
    """What the chain was given; a bundle that it has half is half consumed."""
    buffers: int
    """Buffers that were taken out of the gate."""
    with_data_ms: float
    """Time in which the task was not idle. Back pressure counts: what waits, waits for that too."""
    on_core_ms: float
    """``with_data_ms`` without the time in which threads of the worker waited for a core."""


class _Look(msgspec.Struct):
    consumed_bytes: float
    buffers: int
    with_data_ms: float
    on_core_ms: float
    waiting: int


class Debloater:
    """For one input of a task."""

    def __init__(self, settings: ExchangeSettings) -> None:
        self._segment_bytes = settings.segment_bytes
        self._least_bytes = min(settings.min_buffer_bytes, settings.segment_bytes)
        self._target_ms = settings.debloat_target_ms
        self._threshold = settings.debloat_threshold_percent / 100
        self._samples = settings.debloat_samples
        covered_ms = settings.debloat_samples * settings.debloat_period_ms
        self._evidence_ms = min(self._target_ms, covered_ms / 2)
        self._looks: deque[_Look] = deque()
        self._last = InputTotals(0.0, 0, 0.0, 0.0)
        self.size = settings.segment_bytes
        """What producers were told last; at the start, all that a buffer can hold."""
        self.in_flight_ms = 0.0
        """In about this time what waited at the last look will be consumed."""

    def started(self, totals: InputTotals) -> None:
        """The first look is compared with this."""
        self._last = totals

    def looked(self, totals: InputTotals, waiting: int) -> int | None:
        """The input's totals at this look; returns a new size for its buffers, if there is one.

        ``waiting``: data buffers that have arrived and were not taken, or wait at the producers.
        """
        last, self._last = self._last, totals
        spent_ms = totals.with_data_ms - last.with_data_ms
        if spent_ms <= 0:  # it was idle; its rate is what it was
            self.in_flight_ms = self._time_of(waiting)
            return None
        consumed = max(0.0, totals.consumed_bytes - last.consumed_bytes)
        buffers, on_core_ms = totals.buffers - last.buffers, totals.on_core_ms - last.on_core_ms
        self._looks.append(_Look(consumed, buffers, spent_ms, on_core_ms, waiting))
        self._forget()
        self.in_flight_ms = self._time_of(waiting)
        size = self._wanted()
        if not self._is_worth_telling(size, waiting):
            return None
        self.size = size
        return size

    def _forget(self) -> None:
        """Keep the last looks, and as much before them as it takes to have seen something move.

        A task that needs longer than that for one element is slow, not at a standstill.
        """
        looks = self._looks
        while len(looks) > self._samples:
            oldest = looks.popleft()
            if len(looks) > 1 and not any(look.consumed_bytes for look in looks):
                looks[0].consumed_bytes += oldest.consumed_bytes
                looks[0].buffers += oldest.buffers
                looks[0].with_data_ms += oldest.with_data_ms
                looks[0].on_core_ms += oldest.on_core_ms

    def _wanted(self) -> int:
        looks = self._looks
        consumed = sum(look.consumed_bytes for look in looks)
        spent_ms = sum(look.on_core_ms for look in looks)
        most = max(look.waiting for look in looks)  # what they were once they may soon be again
        if not consumed or not spent_ms:  # nothing was read yet, or it did not come in buffers
            return self.size
        wanted = consumed / spent_ms * self._target_ms / max(1, most)
        return int(min(self._segment_bytes, max(self._least_bytes, wanted)))

    def _is_worth_telling(self, size: int, waiting: int) -> bool:
        now = self.size
        if size == now:
            return False
        if size < now:
            covered_ms = sum(look.with_data_ms for look in self._looks)
            if not waiting or covered_ms < self._evidence_ms:
                return False
        at_an_end = size in (self._segment_bytes, self._least_bytes)
        return at_an_end or abs(size - now) >= now * self._threshold

    def _time_of(self, waiting: int) -> float:
        consumed = sum(look.consumed_bytes for look in self._looks)
        if not waiting or not consumed:
            return 0.0
        spent_ms = sum(look.with_data_ms for look in self._looks)
        buffers = sum(look.buffers for look in self._looks)
        return waiting / max(1, buffers) * spent_ms


class CoreTime:
    """What is left of a task's time if that is left out in which threads waited for a core.

    A wait is told when it is over, so that it may be longer than the time since the last look: the
    rest is left out later. Of what several threads have waited at once, ``most_ms`` at most.
    """

    def __init__(self, most_ms: float) -> None:
        self.spent_ms = self.on_core_ms = 0.0
        self._waited_ms = self._owed_ms = 0.0
        self._most_ms = most_ms

    def passed(self, spent_ms: float, waited_ms: float) -> None:
        """The totals are this far."""
        self._owed_ms += waited_ms - self._waited_ms
        left_ms = spent_ms - self.spent_ms - self._owed_ms
        self.on_core_ms += max(0.0, left_ms)
        self._owed_ms = min(self._most_ms, max(0.0, -left_ms))
        self.spent_ms, self._waited_ms = spent_ms, waited_ms


class BufferSizes:
    """Sets the sizes of the buffers that one task reads. ``later`` calls back inside the baton."""

    def __init__(
        self,
        inputs: Sequence[NetworkInput],
        settings: ExchangeSettings,
        later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._inputs = [(source, Debloater(settings)) for source in inputs]
        self._period_ms = settings.debloat_period_ms
        self._later = later
        self._with_data_ms: Callable[[], float] = lambda: 0.0
        self._runnable_ms: Callable[[], float] = lambda: 0.0
        self._time = CoreTime(settings.debloat_target_ms)
        self._closed = False

    def start(
        self, with_data_ms: Callable[[], float], runnable_ms: Callable[[], float] = lambda: 0.0
    ) -> None:
        """The task runs; ``with_data_ms`` tells for how long it was not idle so far.

        ``runnable_ms``: see ``Clock``.
        """
        self._with_data_ms, self._runnable_ms = with_data_ms, runnable_ms
        for source, debloater in self._inputs:
            debloater.started(self._totals_of(source))
        self._later(self._period_ms, self._adjust)

    @property
    def buffer_size(self) -> int:
        """The shortest buffers of all inputs."""
        return min(debloater.size for _, debloater in self._inputs)

    @property
    def in_flight_ms(self) -> float:
        """In what time the slowest input consumes what waits."""
        return max(debloater.in_flight_ms for _, debloater in self._inputs)

    def close(self) -> None:
        """The task ends. Idempotent."""
        self._closed = True

    def _adjust(self) -> None:
        if self._closed:
            return
        self._time.passed(self._with_data_ms(), self._runnable_ms())
        for source, debloater in self._inputs:
            if not source.ended:
                size = debloater.looked(self._totals_of(source), source.gate.waiting())
                if size is not None:
                    source.gate.resize(size)
        self._later(self._period_ms, self._adjust)

    def _totals_of(self, source: NetworkInput) -> InputTotals:
        consumed_bytes, buffers = source.consumed()
        return InputTotals(consumed_bytes, buffers, self._time.spent_ms, self._time.on_core_ms)


def sizes_for(
    processor: Processor,
    settings: ExchangeSettings,
    later: Callable[[float, Callable[[], None]], object],
) -> "BufferSizes | None":
    """What looks at the inputs of a task; None: it has none, or the settings do not want it."""
    if not settings.debloat or not isinstance(processor, InputProcessor):
        return None
    return BufferSizes(processor.inputs, settings, later)
