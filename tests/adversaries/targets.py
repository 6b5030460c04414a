"""What adversaries speak to: machines of both ends of each port, with bytes for their only input.

Each function feeds one machine a stream, cut into pieces, and fails (AssertionError, or whatever
else is raised) unless the law holds: every input is accepted or ends in a typed error, no more is
kept than the limits allow, nothing is unpickled, and every segment is at home afterwards.
"""

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final
from unittest import mock

import msgspec

from headgate.base.errors import HeadgateError, TransportError
from headgate.base.ids import PeerName
from headgate.base.messages import ControlMessage
from headgate.control.frames import (
    GREETING_BYTES,
    GREETINGS,
    MESSAGE_BYTES,
    TO_DRIVER,
    TO_TASK_MANAGER,
    FrameReader,
    Seal,
)
from headgate.control.proof import DriverProof, WorkerProof
from headgate.core.exchange.decoder import CONTROL_BYTES
from headgate.core.exchange.link import Link
from headgate.core.ingress.gate import Gate
from tests.adversaries.sessions import begin, new_pair, proofs, record_exchange
from tests.core.pair import read_all, scatter

MOST_KEPT: Final = 2 * CONTROL_BYTES
"""What a link may keep of a peer: a landing area, and one message."""
Target = Callable[[bytes, int], bool]
"""Takes a stream and the size of the pieces it comes in; returns whether the peer was proven."""


def producer_hears(stream: bytes, piece: int, compressed: bool = False) -> bool:
    """The data port of a task manager: requests, credit, cancellations and task events."""
    with no_unpickling(), new_pair(compressed) as pair:
        begin(pair)
        link = pair.wire.producer
        was_open = _feed(link, stream, piece)
        link.session.check()
        _end(link)
        return was_open


def consumer_hears(stream: bytes, piece: int, compressed: bool = False) -> bool:
    """The side that has connected: buffers, events, backlogs and errors; its task reads along."""
    with no_unpickling(), new_pair(compressed) as pair:
        _, gate = begin(pair)
        pair.wire.up.take()
        link = pair.wire.consumer
        was_open = _feed(link, stream, piece, lambda: read_through(gate))
        gate.check()
        _end(link)
        read_through(gate)
        return was_open


def driver_hears(stream: bytes, piece: int) -> bool:
    """The control and the result port: the handshake of a worker, then sealed messages."""
    return _control_hears(proofs()[1], TO_DRIVER, stream, piece)


def worker_hears(stream: bytes, piece: int) -> bool:
    """The worker's end of the same."""
    worker = proofs()[0]
    worker.first_word()
    return _control_hears(worker, TO_TASK_MANAGER, stream, piece)


def driver_hears_sealed(stream: bytes, piece: int) -> bool:
    """A proven peer seals whatever it likes: each piece of the stream is a body."""
    return _sealed(TO_DRIVER, stream, piece)


def worker_hears_sealed(stream: bytes, piece: int) -> bool:
    return _sealed(TO_TASK_MANAGER, stream, piece)


def producer_hears_after_the_handshake(stream: bytes, piece: int) -> bool:
    return producer_hears(_UP.handshake + stream, piece)


def consumer_hears_after_the_handshake(stream: bytes, piece: int) -> bool:
    return consumer_hears(_DOWN.handshake + stream, piece)


def consumer_hears_compressed(stream: bytes, piece: int) -> bool:
    return consumer_hears(_DOWN_PACKED.handshake + stream, piece, compressed=True)


_UP, _DOWN = record_exchange()
_UP_PACKED, _DOWN_PACKED = record_exchange(compressed=True)

TARGETS: Final[tuple[Target, ...]] = (
    producer_hears,
    consumer_hears,
    producer_hears_after_the_handshake,
    consumer_hears_after_the_handshake,
    consumer_hears_compressed,
    driver_hears,
    worker_hears,
    driver_hears_sealed,
    worker_hears_sealed,
)


@contextmanager
def no_unpickling() -> Iterator[None]:
    """The exchange and the control never unpickle: tasks and hosts do, with what is proven."""
    with (
        mock.patch.object(pickle, "loads", _explode),
        mock.patch.object(pickle, "load", _explode),
        mock.patch.object(pickle, "Unpickler", _explode),
    ):
        yield


def _explode(*arguments: Any, **named: Any) -> None:
    raise AssertionError("something was unpickled")


def read_through(gate: Gate) -> None:
    """A task reads what has come; it may meet any typed error, and gives every buffer back."""
    for _ in range(20):
        try:
            read_all(gate)
        except HeadgateError:
            continue
        return


def _feed(
    link: Link, stream: bytes, piece: int, between: Callable[[], None] = lambda: None
) -> bool:
    """Deliver in pieces until the link ends, or reads no more; its peer takes every answer."""
    was_open = False
    while stream and link.is_alive:
        count = scatter(link, stream[:piece])
        if not count:
            assert link.is_deaf
            break
        link.received(count, 0.0)
        stream = stream[count:]
        was_open = was_open or link.is_open
        assert sum(map(len, link.targets())) <= MOST_KEPT
        assert sum(map(len, link.decoder._stash)) <= MOST_KEPT
        sent = b"".join(link.outgoing())
        if sent:
            link.sent(len(sent), 0.0)
        assert link.outbox.pending_bytes <= MOST_KEPT
        between()
    return was_open


def _end(link: Link) -> None:
    if link.error is not None:
        assert isinstance(link.error, TransportError), repr(link.error)
    link.ended("the stream is over")


def _control_hears(
    proof: DriverProof | WorkerProof,
    decoder: "msgspec.msgpack.Decoder[Any]",
    stream: bytes,
    piece: int,
) -> bool:
    """As ``prove_stranger`` and ``prove_to_driver`` do, without their sockets."""
    reader = FrameReader(PeerName("adversary"))
    with no_unpickling(), suppress(TransportError):
        for at in range(0, len(stream), piece):
            reader.received(stream[at : at + piece])
            if not proof.is_done:
                assert len(reader._kept) <= GREETING_BYTES + piece
            while _next(reader, proof, decoder) is not None:
                pass
    return proof.is_done


def _next(
    reader: FrameReader, proof: DriverProof | WorkerProof, decoder: "msgspec.msgpack.Decoder[Any]"
) -> ControlMessage | None:
    if proof.is_done:
        message: ControlMessage | None = reader.next(decoder)
        return message
    greeting = reader.next(GREETINGS)
    if greeting is not None:
        proof.received(greeting)
        if proof.is_done:
            reader.proven(proof.keys.receiving, MESSAGE_BYTES)
    return greeting


def _sealed(decoder: "msgspec.msgpack.Decoder[Any]", stream: bytes, piece: int) -> bool:
    key = b"k" * 32
    seal, reader = Seal(key), FrameReader(PeerName("adversary"))
    reader.proven(key, MESSAGE_BYTES)
    with no_unpickling():
        for at in range(0, len(stream), 64 * piece):
            body = stream[at : at + 64 * piece]
            reader.received(seal.make(body) + body)
            with suppress(TransportError):
                reader.next(decoder)
    return True
