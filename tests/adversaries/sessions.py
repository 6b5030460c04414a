"""Sessions of right peers as they go over the wire, and a seeded hand that damages them.

A session is recorded from two real machines, with nonces that repeat: whoever gets the recorded
bytes of its peer again opens as it did then, and so every mutation begins from a right session.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from headgate.base.elements import ByteLike
from headgate.base.events import CheckpointBarrier, TaskEvent
from headgate.base.ids import PeerName
from headgate.base.messages import (
    NONCE_BYTES,
    Cancel,
    Deploy,
    Greeting,
    Heartbeat,
    Register,
    Shutdown,
    TaskChanged,
    TaskState,
    ToDriver,
    ToTaskManager,
)
from headgate.control.frames import LENGTH, FrameWriter, encode
from headgate.control.proof import DriverProof, WorkerProof
from headgate.core.egress.partition import Partition
from headgate.core.exchange.frames import PREFIX
from headgate.core.ingress.gate import Gate
from tests.core.pair import PARTITION, SMALL, Pair, read_all, with_settings, write

JOB: Final = "orders"
JOB_SECRET: Final = b"s" * 32
CHANNELS: Final = 2
PACKED: Final = with_settings(segment_bytes=256)
"""Segments that are long enough to be compressed."""


class Deflate:
    """A codec that is honest about what it expands to, as the host's are."""

    def compress(self, data: ByteLike) -> bytes:
        return zlib.compress(data)

    def decompress(self, data: ByteLike, size: int) -> bytes:
        return zlib.decompressobj().decompress(data, size + 1)


class Rescale(TaskEvent):
    """An event that the producer of the partition subscribes for."""

    def __init__(self, step: int = 0) -> None:
        self.step = step


@dataclass(frozen=True)
class Recorded:
    """One direction of a session: its frames, and how many of them are the handshake."""

    frames: tuple[bytes, ...]
    greetings: int

    @property
    def handshake(self) -> bytes:
        return b"".join(self.frames[: self.greetings])

    @property
    def stream(self) -> bytes:
        return b"".join(self.frames)


def new_pair(compressed: bool = False) -> Pair:
    """Two task managers whose nonces are the same every time."""
    if compressed:
        return Pair(PACKED, codec=Deflate())
    return Pair(SMALL)


def begin(pair: Pair) -> tuple[Partition, Gate]:
    """Both tasks are there, and the first byte has not gone yet."""
    partition, gate = pair.partition(CHANNELS), pair.gate(CHANNELS)
    pair.producer.events.subscribe(PARTITION, Rescale, lambda event: None)
    write(partition, b"first", 0)
    gate.request_partitions()
    return partition, gate


def record_exchange(compressed: bool = False) -> tuple[Recorded, Recorded]:
    """What the consumer says, and what the producer says, from the first to the last word."""
    with new_pair(compressed) as pair:
        partition, gate = begin(pair)
        pair.settle()
        room = pair.settings.segment_bytes
        for number in range(12):
            write(partition, b"%d" % number * (room // 2), number % CHANNELS)
            if number == 5:
                partition.broadcast_event(CheckpointBarrier(1, 2))
                gate.send_event(Rescale(3))
                gate.resize(room // 2)
            pair.settle()
            read_all(gate)
            pair.settle()
        gate.channels[1].release()
        partition.finish()
        pair.settle()
        read_all(gate)
        wire = pair.wire
        pair.consumer.close()
        pair.settle()
        return (
            Recorded(exchange_frames(bytes(wire.up.stream)), 2),
            Recorded(exchange_frames(bytes(wire.down.stream)), 2),
        )


def proofs(job: str = JOB) -> tuple[WorkerProof, DriverProof]:
    """Both sides of a control connection, with nonces that repeat."""
    worker = WorkerProof(job, JOB_SECRET, b"w" * NONCE_BYTES, PeerName("driver"))
    driver = DriverProof({JOB: JOB_SECRET}.get, b"d" * NONCE_BYTES, PeerName("worker"))
    return worker, driver


TO_DRIVER_SAID: Final[tuple[ToDriver, ...]] = (
    Register("0", 0, ("127.0.0.1", 4711), 17, "here"),
    Heartbeat(),
    TaskChanged("orders/0/0", "0.0", TaskState.RUNNING),
    Heartbeat(),
)
TO_WORKER_SAID: Final[tuple[ToTaskManager, ...]] = (
    Deploy("orders/0/0", "orders", 0, {"k": "v"}, [], {"0.0": None}, b"code"),
    Heartbeat(),
    Cancel("orders/0/0", "the user said so"),
    Shutdown("orders/0/0"),
)


def record_control() -> tuple[Recorded, Recorded]:
    """What a worker says to the driver, and what the driver says, sealed after the handshake."""
    worker, driver = proofs()
    up: list[Greeting] = [worker.first_word()]
    down: list[Greeting] = []
    while not worker.is_done:
        down.append(driver.received(up[-1]))
        answer = worker.received(down[-1])
        if answer is not None:
            up.append(answer)
    to_driver, to_worker = FrameWriter(worker.keys.sending), FrameWriter(driver.keys.sending)
    said = [to_driver.encode(message) for message in TO_DRIVER_SAID]
    heard = [to_worker.encode(message) for message in TO_WORKER_SAID]
    return (
        Recorded((*map(encode, up), *said), len(up)),
        Recorded((*map(encode, down), *heard), len(down)),
    )


def exchange_frames(stream: bytes) -> tuple[bytes, ...]:
    """The frames of the data port's protocol."""
    frames, at = [], 0
    while at < len(stream):
        end = at + PREFIX.size + PREFIX.unpack_from(stream, at)[0]
        frames.append(stream[at:end])
        at = end
    return tuple(frames)


# Damage.

Damage = Callable[[Random, list[bytes], Sequence[bytes]], None]
"""Changes a list of frames; the others are those of another session to take some from."""


def _flip(chance: Random, frames: list[bytes], others: Sequence[bytes]) -> None:
    at = chance.randrange(len(frames))
    frame = bytearray(frames[at])
    # The head of a frame says more than its body: it is hit as often.
    byte = chance.randrange(min(len(frame), chance.choice((8, 32, len(frame)))))
    frame[byte] ^= 1 << chance.randrange(8)
    frames[at] = bytes(frame)


def _cut(chance: Random, frames: list[bytes], others: Sequence[bytes]) -> None:
    at = chance.randrange(len(frames))
    begin = chance.randrange(len(frames[at]))
    frames[at] = frames[at][:begin] + frames[at][begin + chance.randint(1, 40) :]


def _drop(chance: Random, frames: list[bytes], others: Sequence[bytes]) -> None:
    if len(frames) > 1:
        del frames[chance.randrange(len(frames))]


def _duplicate(chance: Random, frames: list[bytes], others: Sequence[bytes]) -> None:
    frames.insert(chance.randrange(len(frames) + 1), chance.choice(frames))


def _reorder(chance: Random, frames: list[bytes], others: Sequence[bytes]) -> None:
    first, second = chance.randrange(len(frames)), chance.randrange(len(frames))
    frames[first], frames[second] = frames[second], frames[first]


def _splice(chance: Random, frames: list[bytes], others: Sequence[bytes]) -> None:
    frames.insert(chance.randrange(len(frames) + 1), chance.choice(others))


def _lengthen(chance: Random, frames: list[bytes], others: Sequence[bytes]) -> None:
    at = chance.randrange(len(frames))
    length = chance.choice((0, 1, 255, 4097, 2**16, 2**24, 2**31 - 1, 2**31, 2**32 - 1))
    frames[at] = LENGTH.pack(length) + frames[at][LENGTH.size :]


def _insert(chance: Random, frames: list[bytes], others: Sequence[bytes]) -> None:
    frames.insert(chance.randrange(len(frames) + 1), chance.randbytes(chance.randint(1, 80)))


DAMAGES: Final[tuple[Damage, ...]] = (
    _flip, _flip, _flip, _cut, _drop, _duplicate, _reorder, _splice, _lengthen, _insert,
)  # fmt: skip


def damaged(chance: Random, recorded: Recorded, others: Sequence[bytes]) -> bytes:
    """The session with one to three damages; mostly after the handshake, where there is more."""
    spared = recorded.greetings if chance.random() < 0.8 else 0
    frames = list(recorded.frames[spared:])
    for _ in range(chance.randint(1, 3)):
        chance.choice(DAMAGES)(chance, frames, others)
        frames = [frame for frame in frames if frame] or [b"\0"]
    return b"".join((*recorded.frames[:spared], *frames))
