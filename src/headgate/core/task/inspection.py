"""Looking at a running task from outside: what waits in its inputs, and its keyed state.

Whoever asks comes inside the baton. Law: the copy of what waits is bounded in bytes and in
channels, runs no code of the user and changes nothing; to decode it, outside of the baton,
``things`` is all that is needed. Every question about state is answered once, at the latest when
the task ends, unless nobody waits for it any more; a task that is busy has a bounded number of
questions waiting.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from headgate.base.elements import Key, Record, Serializer
from headgate.base.inspections import ReadState, StateValues
from headgate.core.chain.chain import Chain
from headgate.core.chain.operator import Operator
from headgate.core.chain.outputs import Loan
from headgate.core.checkpoint.inputs import single_gates
from headgate.core.ingress.gate import Gate
from headgate.core.ingress.waiting import (
    Expand,
    Place,
    WaitingCopier,
    WaitingPiece,
    WaitingThing,
    decode_waiting,
)
from headgate.core.task.inputs import NetworkInput
from headgate.core.task.mailbox import NORMAL, Mailbox

MOST_CHANNELS: Final = 1_000
"""Channels of a gate that are looked at, those with the longest queues first."""

SMALLEST_SHARE_BYTES: Final = 256 * 1024
"""A channel's share is never less: a bundle may be as long as several buffers."""


@dataclass(frozen=True, slots=True)
class CopiedChannel:
    """What waits in one channel."""

    index: int
    pieces: Sequence[WaitingPiece]
    complete: bool
    """All that waits in this process was copied."""
    serializer: Serializer


@dataclass(frozen=True, slots=True)
class CopiedGate:
    """What waits in the channels of one gate, the longest queues first."""

    gate: int
    channels: int
    """Number of channels of the gate, looked at or not."""
    buffers: int
    """Data buffers that wait, also with producers in other processes."""
    copied: Sequence[CopiedChannel]
    complete: bool
    key_of: Callable[[Record], Key] | None
    """None: records of this gate have no keys."""
    expand: Expand

    def things(self, channel: CopiedChannel) -> Iterator[tuple[Place, WaitingThing]]:
        """Elements and events, in order; called outside of the baton."""
        return decode_waiting(channel.pieces, channel.serializer, self.expand, channel.complete)


@dataclass(frozen=True, slots=True)
class CopyLimits:
    """How much of a gate is copied."""

    total_bytes: int
    shared: bool = False
    """Every channel with data gets a share; else the longest queue gets all that it needs."""


class WaitingInputs:
    """What waits in the gates of a task, numbered as the task numbers them."""

    def __init__(
        self, head: Operator, inputs: Sequence[NetworkInput], gates: Sequence[Gate]
    ) -> None:
        self._head = head
        self._gates = gates
        self._places: dict[int, tuple[NetworkInput, int]] = {}
        for source in inputs:
            offset = 0
            for single in single_gates(source.gate):
                at = next(number for number, gate in enumerate(gates) if gate is single)
                self._places[at] = source, offset
                offset += single.channel_count

    def keyed_gates(self) -> list[int]:
        """Numbers of the gates whose records have keys."""
        return [
            gate
            for gate, (source, _) in sorted(self._places.items())
            if self._head.key_selector(source.number) is not None
        ]

    def copy(self, gate: int, channel: int | None, limits: CopyLimits) -> CopiedGate:
        """Copy what waits in one channel, or (None) in all channels of a gate."""
        source, offset = self._places[gate]
        channels = self._gates[gate].channels
        queues = {index: channels[index].waiting() for index in _chosen(channels, channel)}
        longest = sorted(queues, key=lambda index: -queues[index])
        share = left = limits.total_bytes
        if limits.shared:
            filled = sum(1 for waiting in queues.values() if waiting)
            share = max(SMALLEST_SHARE_BYTES, left // max(1, filled))
        copied: list[CopiedChannel] = []
        for index in longest[:MOST_CHANNELS]:
            copier = WaitingCopier(min(share, left))
            source.copy_waiting(offset + index, copier)
            left -= copier.copied_bytes
            if copier.pieces or not copier.complete:
                serializer = source.serializer_of(offset + index)
                copied.append(CopiedChannel(index, copier.pieces, copier.complete, serializer))
        return CopiedGate(
            gate,
            len(channels),
            sum(queues.values()),
            copied,
            len(longest) <= MOST_CHANNELS and all(each.complete for each in copied),
            self._head.key_selector(source.number),
            source.gate.expand,
        )


def _chosen(channels: Sequence[object], channel: int | None) -> range:
    return range(len(channels)) if channel is None else range(channel, channel + 1)


MOST_WAITING: Final = 256

AnswerRead: TypeAlias = Callable[[StateValues | str], None]
"""Takes what was found, or why the task could not be looked at; called inside the baton."""


class StateReads:
    """Point reads of a task's keyed state, answered between two bundles.

    One mail on the task's own thread answers all that wait, while no function of the user runs, so
    that each answer is of one moment.
    """

    def __init__(
        self, chain: Chain, mailbox: Mailbox, loan: Loan, now_ms: Callable[[], float]
    ) -> None:
        self._chain = chain
        self._mailbox = mailbox
        self._loan = loan
        self._now_ms = now_ms
        self._waiting: deque[tuple[ReadState, float, AnswerRead]] = deque()
        self._mailed = False

    def ask(self, question: ReadState, answer: AnswerRead) -> None:
        """Somebody wants to know (inside the baton)."""
        if len(self._waiting) >= MOST_WAITING:
            answer(f"{MOST_WAITING} other reads of its state wait already; ask again later")
            return
        self._waiting.append((question, self._now_ms() + question.within_ms, answer))
        if not self._mailed:
            self._mailed = self._mailbox.put("read state", self._read, NORMAL)
            if not self._mailed:
                self.close("it has ended")

    def close(self, problem: str) -> None:
        """The task has ended (inside the baton)."""
        self._mailed = False
        waiting, self._waiting = self._waiting, deque()
        for _, _, answer in waiting:
            answer(problem)

    def _read(self) -> None:
        self._mailed = False
        waiting, self._waiting = self._waiting, deque()
        now_ms = self._now_ms()
        asked = [(question, answer) for question, until, answer in waiting if until > now_ms]
        with self._loan:  # values may be of the user's classes
            found = [self._values(question) for question, _ in asked]
        for (_, answer), values in zip(asked, found, strict=True):
            answer(values)

    def _values(self, question: ReadState) -> StateValues:
        reader = self._chain.state_reader(question.uid)
        if reader is None:
            return StateValues(problem="it keeps no state by key; call key_by() before it")
        return reader.read(question.state, question.keys)
