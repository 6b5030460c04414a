"""A task's looks at its inputs: from time to time each may ask its producers for other buffers.

Law: looks come at the settings' period from the start of the task to its end, inside the baton, and
cost nothing in between. What a debloater answers is told to the gate of its input.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.base.settings import ExchangeSettings
from headgate.core.ingress.debloating import Debloater, InputTotals
from headgate.core.task.inputs import NetworkInput
from headgate.core.task.processors import InputProcessor, Processor


@dataclass(frozen=True, slots=True)
class SizeStatistics:
    """The present size of the buffers to a task, and in what time it consumes what waits."""

    buffer_size: int
    in_flight_ms: float


NO_SIZES: Final = SizeStatistics(0, 0.0)
"""Of a task that reads from nobody, or has no say in the size of buffers."""


def sizes_for(
    processor: Processor,
    settings: ExchangeSettings,
    later: Callable[[float, Callable[[], None]], object],
) -> "BufferSizes | None":
    """What looks at the inputs of a task; None: it has none, or the settings do not want it."""
    if not settings.debloat or not isinstance(processor, InputProcessor):
        return None
    return BufferSizes(processor.inputs, settings, later)


class BufferSizes:
    """Of one task. ``later`` calls back inside the baton."""

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
        self._closed = False

    def start(self, with_data_ms: Callable[[], float]) -> None:
        """The task runs; ``with_data_ms`` tells for how long it was not idle so far."""
        self._with_data_ms = with_data_ms
        for source, debloater in self._inputs:
            debloater.started(self._told(source))
        self._later(self._period_ms, self._look)

    def statistics(self) -> SizeStatistics:
        """The shortest buffers and the longest time of all inputs."""
        debloaters = [debloater for _, debloater in self._inputs]
        return SizeStatistics(
            min(one.size for one in debloaters), max(one.in_flight_ms for one in debloaters)
        )

    def close(self) -> None:
        """The task ends. Idempotent."""
        self._closed = True

    def _look(self) -> None:
        if self._closed:
            return
        for source, debloater in self._inputs:
            if not source.ended:
                size = debloater.looked(self._told(source), source.gate.waiting())
                if size is not None:
                    source.gate.resize(size)
        self._later(self._period_ms, self._look)

    def _told(self, source: NetworkInput) -> InputTotals:
        consumed_bytes, buffers = source.consumed()
        return InputTotals(consumed_bytes, buffers, self._with_data_ms())
