"""Wiring: which tasks of two vertices an edge connects.

Law: subpartition ``n`` of a producer is read by the ``n``-th of its consumers and by nobody else.
All-to-all connects each with each. Pointwise gives every producer and every consumer at least one
partner, neighbours share, and the shares differ by one at most.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wiring:
    """Between ``producers`` and ``consumers`` parallel tasks."""

    producers: int
    consumers: int
    pointwise: bool

    def consumers_of(self, producer: int) -> range:
        if not self.pointwise:
            return range(self.consumers)
        if self.producers < self.consumers:
            return range(self._first_consumer(producer), self._first_consumer(producer + 1))
        last = ((producer + 1) * self.consumers - 1) // self.producers
        return range(last, last + 1)

    def producers_of(self, consumer: int) -> range:
        if not self.pointwise:
            return range(self.producers)
        first = consumer * self.producers // self.consumers
        if self.producers < self.consumers:
            return range(first, first + 1)
        return range(first, (consumer + 1) * self.producers // self.consumers)

    def subpartition(self, producer: int, consumer: int) -> int:
        """Which one of the producer's the consumer reads."""
        return consumer - self.consumers_of(producer).start

    def _first_consumer(self, producer: int) -> int:
        return -(-producer * self.consumers // self.producers)
