"""The ledger: what was written for each channel, and how far its reader has come.

Law: what a reader gets is what the log of its subpartition says at its position, so loss, doubling,
reordering and damage are seen at the first item that is wrong. At the end of a partition its reader
stands at the end of the log.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from headgate.base.elements import Bundle, Element, Record
from headgate.base.events import Event, RuntimeEvent
from headgate.base.ids import PartitionId
from headgate.sim.worker import CheckFailed

Item: TypeAlias = tuple[Record, int | None] | Element | RuntimeEvent
"""A record with its timestamp, any other element, or an event."""


@dataclass(slots=True)
class Position:
    """One reader of one subpartition."""

    reader: str
    partition: PartitionId
    subpartition: int
    read: int = 0
    ended: bool = False

    def __str__(self) -> str:
        return f"{self.reader} reading {self.partition}[{self.subpartition}]"


class Ledger:
    """All logs of a run."""

    def __init__(self) -> None:
        self.items_read = 0
        self._logs: dict[tuple[PartitionId, int], list[Item]] = {}

    def opened(self, partition: PartitionId, subpartitions: int) -> None:
        """A partition will be written."""
        for index in range(subpartitions):
            self._logs[partition, index] = []

    def wrote(self, partition: PartitionId, subpartition: int, item: Item) -> None:
        """A writer is about to write this."""
        self._logs[partition, subpartition].append(item)

    def got(self, position: Position, item: Item) -> None:
        """A reader got this; raises if it is not what comes next."""
        log = self._logs.get((position.partition, position.subpartition), [])
        at = position.read
        if position.ended:
            raise CheckFailed(f"{position}: {_short(item)} came after the end")
        if at >= len(log) or log[at] != item:
            raise CheckFailed(f"{position}: {_explain(log, at, item)}")
        position.read = at + 1
        self.items_read += 1

    def ended(self, position: Position) -> None:
        """A reader got the end of the partition."""
        log = self._logs.get((position.partition, position.subpartition), [])
        if position.ended:
            raise CheckFailed(f"{position}: its end came twice")
        if position.read != len(log):
            missing = len(log) - position.read
            raise CheckFailed(f"{position}: the end came and {missing} items are lost")
        position.ended = True


def items_of(element: Element) -> Iterator[Item]:
    """The items of an element: a bundle counts record by record."""
    if not isinstance(element, Bundle):
        yield element
        return
    times = element.timestamps or [None] * len(element.records)
    yield from zip(element.records, times, strict=True)


def item_of(event: Event) -> Item:
    """The item of an event that travels with the data."""
    assert isinstance(event, RuntimeEvent), f"{event} came down a channel"
    return event


def _explain(log: list[Item], at: int, item: Item) -> str:
    expected = _short(log[at]) if at < len(log) else "nothing more"
    where = next((index for index, known in enumerate(log) if known == item), None)
    if where is None:
        fault = "damaged, or of another channel"
    elif where < at:
        fault = f"doubled (it was item {where})"
    else:
        fault = f"early (it is item {where}): something was lost or reordered"
    return f"item {at} should be {expected} and is {_short(item)}, {fault}"


def _short(item: Item) -> str:
    text = repr(item)
    return text if len(text) <= 80 else f"{text[:60]}…{text[-15:]}"
