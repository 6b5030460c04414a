"""How much memory the exchange gets, and how many buffers each of its parts needs.

The sums name every holder of a buffer, so that a job which cannot fit is refused before it starts.
"""

from dataclasses import dataclass

from headgate.base.settings import ExchangeSettings, FlowControl


@dataclass(frozen=True, slots=True)
class PoolBounds:
    """What a pool is guaranteed, and what it may grow to (None: no bound)."""

    minimum: int
    maximum: int | None


def network_memory_bytes(settings: ExchangeSettings, heap_bytes: int) -> int:
    """Bytes for the arena: the fraction of the whole of which ``heap_bytes`` is the other part."""
    fraction = settings.memory_fraction
    wanted = int(heap_bytes / (1 - fraction) * fraction)
    return min(settings.memory_max_bytes, max(settings.memory_min_bytes, wanted))


def segment_count(settings: ExchangeSettings, heap_bytes: int) -> int:
    """Segments of the arena for a worker with this much other memory."""
    return network_memory_bytes(settings, heap_bytes) // settings.segment_bytes


def partition_bounds(settings: ExchangeSettings, subpartitions: int, bounded: bool) -> PoolBounds:
    """A result partition: one buffer for each subpartition and one to go on with."""
    minimum = subpartitions + 1
    if not bounded:
        return PoolBounds(minimum, None)
    wanted = subpartitions * settings.buffers_per_channel + settings.floating_per_gate
    return PoolBounds(minimum, max(minimum, wanted))


def gate_bounds(settings: ExchangeSettings, channels: int, bounded: bool) -> PoolBounds:
    """An input gate's pool: floating buffers with credits, all of its buffers without."""
    if settings.flow_control is FlowControl.CREDIT:
        minimum = 1 if settings.buffers_per_channel == 0 else 0
        return PoolBounds(minimum, max(minimum, settings.floating_per_gate) if bounded else None)
    maximum = channels * max(1, settings.buffers_per_channel) + settings.floating_per_gate
    return PoolBounds(channels, maximum if bounded else None)


@dataclass(frozen=True, slots=True)
class GateShape:
    """How many channels a gate has, and how many of them read from other task managers."""

    channels: int
    remote: int


@dataclass(frozen=True, slots=True)
class BufferNeed:
    """The least number of buffers a task manager needs, each holder by its name."""

    partitions: int = 0
    gates: int = 0
    exclusive: int = 0
    landing: int = 0
    spare: int = 0
    """What its pools can use beyond that; nobody has to have it."""

    @property
    def total(self) -> int:
        return self.partitions + self.gates + self.exclusive + self.landing


def buffer_need(
    settings: ExchangeSettings, partitions: list[int], gates: list[GateShape], connections: int
) -> BufferNeed:
    """The need of tasks with outputs of so many subpartitions, these gates and connections.

    It is what ``Environment`` and the connections ask the global pool for, and no more.
    """
    credit = settings.flow_control is FlowControl.CREDIT
    outputs = [partition_bounds(settings, count, bounded=True) for count in partitions]
    inputs = [gate_bounds(settings, gate.channels, bounded=True) for gate in gates]
    remote = sum(gate.remote for gate in gates)
    return BufferNeed(
        partitions=sum(bounds.minimum for bounds in outputs),
        gates=sum(bounds.minimum for bounds in inputs),
        exclusive=remote * settings.buffers_per_channel if credit else 0,
        landing=connections * settings.landing_buffers,
        spare=sum((bounds.maximum or 0) - bounds.minimum for bounds in (*outputs, *inputs)),
    )
