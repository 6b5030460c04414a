"""What a task gets back of a checkpoint when it is set up.

The driver of the task has read it from the storage, all but keyed state, which operators read
themselves. Law: records that were on their way come before everything that follows them; what had
finished opens no operator but those that have something to commit.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from headgate.base.elements import Bundle
from headgate.core.chain.snapshots import OperatorRestored
from headgate.core.chain.spec import OperatorSpec

ChannelParts: TypeAlias = tuple[int, int, Sequence[bytes]]
"""Gate and channel in it, or partition and subpartition, and the bytes it begins with."""

Strays: TypeAlias = tuple[int, Iterable[Bundle]]
"""A gate, and records that were on their way to it in channels that there are not any more."""


@dataclass(frozen=True, slots=True)
class TaskRestored:
    """For one task."""

    operators: Mapping[str, OperatorRestored] = field(default_factory=dict)
    """By uid."""
    inputs: Sequence[ChannelParts] = ()
    """By the gates of the task, not of its inputs: a union has several."""
    outputs: Sequence[ChannelParts] = ()
    strays: Sequence[Strays] = ()
    """Read before all other input."""
    finished: bool = False
    """It had finished: it reads its inputs to their ends, and ends its outputs."""

    def opens(self, spec: OperatorSpec) -> bool:
        """Whether an operator is to be opened."""
        if not self.finished:
            return True
        known = self.operators.get(spec.uid)
        return known is not None and bool(known.sinks)


FRESH = TaskRestored()
"""Of a task that goes on from nowhere; one that goes on may have kept nothing, but is not this."""
