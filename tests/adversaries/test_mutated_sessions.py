"""Recorded sessions of every port, damaged by a seeded hand: accepted, or a typed error."""

from random import Random

import pytest

from headgate.base.ids import PeerName
from headgate.control import frames as control_frames
from headgate.core.exchange import frames, link
from tests.adversaries.sessions import Recorded, damaged, record_control, record_exchange
from tests.adversaries.targets import (
    Target,
    consumer_hears,
    driver_hears,
    producer_hears,
    worker_hears,
)

UP, DOWN = record_exchange()
PACKED_UP, PACKED_DOWN = record_exchange(compressed=True)
TO_DRIVER, TO_WORKER = record_control()
OTHERS = (*UP.frames, *DOWN.frames, *PACKED_DOWN.frames, *TO_DRIVER.frames, *TO_WORKER.frames)
ROUNDS = 250


def packed_consumer_hears(stream: bytes, piece: int) -> bool:
    return consumer_hears(stream, piece, compressed=True)


def packed_producer_hears(stream: bytes, piece: int) -> bool:
    return producer_hears(stream, piece, compressed=True)


SESSIONS: dict[str, tuple[Recorded, Target]] = {
    "requests": (UP, producer_hears),
    "buffers": (DOWN, consumer_hears),
    "requests for compressed buffers": (PACKED_UP, packed_producer_hears),
    "compressed buffers": (PACKED_DOWN, packed_consumer_hears),
    "to the driver": (TO_DRIVER, driver_hears),
    "to a worker": (TO_WORKER, worker_hears),
}


@pytest.mark.parametrize("name", SESSIONS)
@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_a_session_as_it_was_recorded_is_accepted(name: str, piece: int) -> None:
    recorded, target = SESSIONS[name]
    assert recorded.greetings < len(recorded.frames)
    assert target(recorded.stream, piece)


@pytest.mark.parametrize("name", SESSIONS)
def test_a_damaged_session_is_accepted_or_ends_in_a_typed_error(name: str) -> None:
    hear_damaged(name, *SESSIONS[name], ROUNDS)


def hear_damaged(name: str, recorded: Recorded, target: Target, rounds: int) -> None:
    for seed in range(rounds):
        chance = Random(f"{name} {seed}")
        stream = damaged(chance, recorded, OTHERS)
        was_proven = target(stream, chance.choice((1 << 20, 1 << 20, 64, 13)))
        if was_proven:
            assert stream.startswith(recorded.handshake), (
                f"seed {seed}: proven by another handshake"
            )


def test_an_error_without_a_type_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(kind: frames.Kind, body: memoryview, peer: PeerName) -> frames.Message:
        if kind is frames.Kind.CANCEL and len(body) != 8:
            raise IndexError("a bug that only damaged frames meet")
        return frames.decode(kind, body, peer)

    monkeypatch.setattr(link, "decode", decode)
    with pytest.raises(IndexError):
        hear_damaged("planted", UP, producer_hears, 20 * ROUNDS)


def test_a_frame_that_is_kept_without_a_limit_would_be_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(control_frames, "GREETING_BYTES", 1 << 30)
    with pytest.raises(AssertionError):
        driver_hears((1 << 20).to_bytes(4, "little") + bytes(1 << 20), 1 << 12)
