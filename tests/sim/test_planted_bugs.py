"""The checkers can fail: bugs planted in the machines are found within a few seeds."""

from collections.abc import Callable

import pytest

from headgate.core.buffers.local_pool import LocalPool
from headgate.core.egress.pipelined import PipelinedSubpartition
from headgate.core.egress.router import RoundRobin
from headgate.core.egress.writer import Flusher
from headgate.core.exchange.link import Link
from headgate.core.exchange.outbox import Outbox
from headgate.core.exchange.receiver import ReceiverSession
from headgate.core.exchange.sender import SenderSession
from headgate.core.exchange.view import PolledBuffer
from headgate.core.ingress.channel import BufferAndAvailability
from headgate.core.ingress.remote import RemoteChannel
from tests.sim.world import RunFailed, simulate

SEEDS = 80
Patch = pytest.MonkeyPatch


def credit_is_not_spent(patch: Patch) -> None:
    real = SenderSession._send_next

    def send_next(session: SenderSession, reader) -> None:
        credit = reader.credit
        real(session, reader)
        reader.credit = credit

    patch.setattr(SenderSession, "_send_next", send_next)


def credit_is_announced_twice(patch: Patch) -> None:
    real = RemoteChannel.take_credit

    def take_credit(channel: RemoteChannel) -> int:
        return 2 * real(channel)

    patch.setattr(RemoteChannel, "take_credit", take_credit)


def credit_is_forgotten(patch: Patch) -> None:
    patch.setattr(SenderSession, "_add_credit", lambda session, receiver, credit: None)


def a_buffer_is_dropped(patch: Patch) -> None:
    polls = every(15)
    real = PipelinedSubpartition.poll

    def poll(subpartition: PipelinedSubpartition) -> PolledBuffer | None:
        polled = real(subpartition)
        if polled is not None and not polled.buffer.is_event and polls():
            polled.buffer.release()
            return real(subpartition)
        return polled

    patch.setattr(PipelinedSubpartition, "poll", poll)


def a_buffer_comes_twice(patch: Patch) -> None:
    nexts = every(10)
    real = RemoteChannel.next

    def next_(channel: RemoteChannel) -> BufferAndAvailability | None:
        got = real(channel)
        if got is not None and got.buffer.lease is not None and nexts():
            got.buffer.lease.retain()
            channel._received.appendleft(got.buffer)
            got.more = True
        return got

    patch.setattr(RemoteChannel, "next", next_)


def buffers_change_places(patch: Patch) -> None:
    real = RemoteChannel.buffer_arrived

    def buffer_arrived(channel: RemoteChannel, sequence: int, backlog: int, buffer) -> None:
        real(channel, sequence, backlog, buffer)
        channel._received.rotate(1)

    patch.setattr(RemoteChannel, "buffer_arrived", buffer_arrived)


def a_record_takes_the_wrong_channel(patch: Patch) -> None:
    real = RoundRobin.split

    def split(router: RoundRobin, records, timestamps):
        return [
            ((channel + 1) % router.channels, part, times)
            for channel, part, times in real(router, records, timestamps)
        ]

    patch.setattr(RoundRobin, "split", split)


def a_lease_leaks(patch: Patch) -> None:
    sends = every(10)
    real = Outbox.sent

    def sent(outbox: Outbox, count: int) -> None:
        if sends() and outbox._buffers:
            outbox._buffers.pop()
        real(outbox, count)

    patch.setattr(Outbox, "sent", sent)


def a_lease_is_released_twice(patch: Patch) -> None:
    real = RemoteChannel.release

    def release(channel: RemoteChannel) -> None:
        for lease in list(channel._floating)[:1]:
            lease.release()
        real(channel)

    patch.setattr(RemoteChannel, "release", release)


def a_segment_is_forgotten_at_release(patch: Patch) -> None:
    real = RemoteChannel.release

    def release(channel: RemoteChannel) -> None:
        if channel._received:
            channel._received.pop()
        real(channel)

    patch.setattr(RemoteChannel, "release", release)


def a_writer_is_not_woken(patch: Patch) -> None:
    patch.setattr(LocalPool, "_tell_available", lambda pool: None)


def a_reader_is_not_told(patch: Patch) -> None:
    patch.setattr(PipelinedSubpartition, "_tell_reader", lambda subpartition: None)


def a_flush_does_nothing(patch: Patch) -> None:
    patch.setattr(PipelinedSubpartition, "flush", lambda subpartition: None)


def flushes_are_put_off(patch: Patch) -> None:
    real = Flusher._flush

    def flush(flusher: Flusher, now_ms: float) -> None:
        real(flusher, now_ms)
        flusher._next_ms += flusher._period_ms

    patch.setattr(Flusher, "_flush", flush)


def backlog_is_not_announced(patch: Patch) -> None:
    patch.setattr(SenderSession, "_announce", lambda session, reader: None)


def a_lost_connection_is_kept_secret(patch: Patch) -> None:
    patch.setattr(ReceiverSession, "fail", lambda session, error, may_pass=False: None)


def a_silent_peer_is_not_noticed(patch: Patch) -> None:
    real = Link.tick

    def tick(link: Link, now_ms: float) -> None:
        link._heard_ms = now_ms
        real(link, now_ms)

    patch.setattr(Link, "tick", tick)


def every(count: int) -> Callable[[], bool]:
    """True at every so-manieth call."""
    calls = 0

    def now() -> bool:
        nonlocal calls
        calls += 1
        return calls % count == 0

    return now


STUCK = ("does not go on", "no trouble explains", "left open", "was not told")
BUGS = {
    credit_is_not_spent: ("credits at the sender", "gave no credit", "without credit"),
    credit_is_announced_twice: ("credits at the sender", "gave no credit"),
    credit_is_forgotten: ("credits at the sender",),
    a_buffer_is_dropped: ("lost", "ElementBroken", "middle of an element", "damaged", "Error"),
    a_buffer_comes_twice: ("doubled", "damaged", "Element", "middle of an element", "Error"),
    buffers_change_places: ("reordered", "damaged", "Element", "middle of an element", "Error"),
    a_record_takes_the_wrong_channel: ("damaged, or of another channel",),
    a_lease_leaks: ("readers", "nowhere"),
    a_lease_is_released_twice: ("two places", "released twice", "AssertionError"),
    a_segment_is_forgotten_at_release: ("nowhere",),
    a_writer_is_not_woken: STUCK,
    a_reader_is_not_told: STUCK,
    a_flush_does_nothing: ("not flushed in time",),
    flushes_are_put_off: ("too long",),
    backlog_is_not_announced: STUCK,
    a_lost_connection_is_kept_secret: ("was not told",),
    a_silent_peer_is_not_noticed: STUCK,
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found_and_can_be_replayed(
    bug: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    bug(monkeypatch)
    failure = first_failure()
    assert any(part in failure.problem for part in BUGS[bug]), failure.problem
    assert f"make sim SEED={failure.seed}" in str(failure)
    assert failure.trace, "the last steps are told"


def first_failure() -> RunFailed:
    for seed in range(SEEDS):
        try:
            simulate(seed)
        except RunFailed as failure:
            return failure
    pytest.fail(f"{SEEDS} seeds did not find it")
