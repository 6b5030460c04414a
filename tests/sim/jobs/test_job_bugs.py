"""The checkers can fail: bugs planted in tasks, chains and the hand-over are found soon."""

from collections.abc import Callable

import pytest

from headgate.base.elements import Bundle
from headgate.core.buffers.local_pool import LocalPool
from headgate.core.chain.chain import Chain
from headgate.core.chain.outputs import NetworkOutput
from headgate.core.egress.partition import PipelinedSubpartition
from headgate.core.egress.writer import Flusher, RecordWriter
from headgate.core.exchange.link import Link
from headgate.core.exchange.outbox import Outbox
from headgate.core.exchange.receiver import ReceiverSession
from headgate.core.exchange.sender import SenderSession
from headgate.core.exchange.view import PolledBuffer
from headgate.core.ingress.channel import BufferAndAvailability
from headgate.core.ingress.gate import Gate
from headgate.core.ingress.remote import RemoteChannel
from headgate.core.ingress.valve import WatermarkValve
from headgate.core.operators.source import SourceOperator
from headgate.core.task.deployment import DeployedTasks
from headgate.core.task.idling import SourceIdling
from headgate.core.task.inputs import NetworkInput
from headgate.core.task.processors import SourceProcessor
from headgate.core.task.task import Task
from tests.sim.jobs.world import simulate_job
from tests.sim.outcome import RunFailed

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


def a_writer_is_not_woken(patch: Patch) -> None:
    patch.setattr(LocalPool, "_tell_available", lambda pool: None)


def a_reader_is_not_told_of_a_bundle(patch: Patch) -> None:
    real = PipelinedSubpartition.add

    def add(subpartition: PipelinedSubpartition, consumer) -> bool:
        if consumer.ready is None or consumer.ready.bundle is None:
            return real(subpartition, consumer)
        on_data, subpartition._on_data = subpartition._on_data, None
        added = real(subpartition, consumer)
        subpartition._on_data = on_data
        return added

    patch.setattr(PipelinedSubpartition, "add", add)


def a_task_stays_suspended(patch: Patch) -> None:
    def look_again(task: Task) -> None:
        if task._processor.available() and not isinstance(task._processor, SourceProcessor):
            task._loop.resume()

    patch.setattr(Task, "_resume_if_possible", look_again)


def a_source_is_not_woken_when_it_is_due(patch: Patch) -> None:
    def become_due(idling: SourceIdling) -> None:
        idling.due = True

    patch.setattr(SourceIdling, "become_due", become_due)


def a_wake_that_comes_during_a_poll_is_lost(patch: Patch) -> None:
    real = SourceIdling.rest

    def rest(idling: SourceIdling, wait_ms: float, descriptors=()) -> bool:
        idling.due = False
        return real(idling, wait_ms, descriptors)

    patch.setattr(SourceIdling, "rest", rest)


def a_source_sleeps_over_its_wakes(patch: Patch) -> None:
    def wake(idling: SourceIdling) -> None:
        idling.due = True

    patch.setattr(SourceIdling, "wake", wake)


def a_readable_descriptor_does_not_rouse_its_source(patch: Patch) -> None:
    patch.setattr(SourceIdling, "_readable", lambda idling, descriptor: idling._end_watch())


def a_late_place_is_not_requested(patch: Patch) -> None:
    def replace(gate: Gate, channel) -> None:
        gate._channels[channel.index] = channel

    patch.setattr(Gate, "replace", replace)


def bytes_and_bundles_change_places(patch: Patch) -> None:
    real = RecordWriter._hand_over

    def hand_over(writer: RecordWriter, lane: int, bundle: Bundle) -> None:
        builder, writer._builders[lane] = writer._builders[lane], None
        real(writer, lane, bundle)
        writer._builders[lane] = builder

    patch.setattr(RecordWriter, "_hand_over", hand_over)


def shared_records_are_handed_over(patch: Patch) -> None:
    """Several outputs get the same records, and one reader changes them."""
    real = Chain._output_to

    def output_to(chain: Chain, spec, to):
        output = real(chain, spec, to)
        if isinstance(output, NetworkOutput):
            output._writer.hands_over = True
        return output

    patch.setattr(Chain, "_output_to", output_to)


def the_rest_of_a_bundle_is_lost(patch: Patch) -> None:
    real = NetworkInput._cut

    def cut(source: NetworkInput, bundle: Bundle, limit: int) -> Bundle:
        piece = real(source, bundle, min(limit, 2))
        source._rest = None
        return piece

    patch.setattr(NetworkInput, "_cut", cut)


def staged_records_come_twice(patch: Patch) -> None:
    real = NetworkOutput._write_waiting

    def write_waiting(output: NetworkOutput) -> None:
        kept = [bundle.copy() for bundle in output._waiting]
        real(output)
        for bundle in kept:
            if len(bundle) == 3:
                output._writer.emit_bundle(bundle)

    patch.setattr(NetworkOutput, "_write_waiting", write_waiting)


def a_watermark_overtakes_records(patch: Patch) -> None:
    def emit_watermark(output: NetworkOutput, watermark) -> None:
        output._loan.regain()
        output._writer.emit_element(watermark)
        output._loan.lend()

    patch.setattr(NetworkOutput, "emit_watermark", emit_watermark)


def event_time_follows_the_fastest(patch: Patch) -> None:
    def slowest(valve: WatermarkValve) -> int | None:
        return max(
            (channel.watermark_ms for channel in valve._channels if channel.caught_up),
            default=None,
        )

    patch.setattr(WatermarkValve, "_slowest", slowest)


def the_last_watermark_is_forgotten(patch: Patch) -> None:
    patch.setattr(SourceOperator, "finish", lambda operator: None)


def an_operator_is_not_closed(patch: Patch) -> None:
    real = Chain.close

    def close(chain: Chain) -> None:
        chain.operators.pop()
        real(chain)

    patch.setattr(Chain, "close", close)


def the_loan_is_not_called_back(patch: Patch) -> None:
    def inside(output: NetworkOutput, action: Callable[[], None]) -> None:
        output._write_waiting()
        output._write(action)

    patch.setattr(NetworkOutput, "_inside", inside)


def time_is_lost(patch: Patch) -> None:
    def waiting(task: Task, waits: bool) -> None:
        """Nobody says how long it took."""
        task._times._since_ms = task._clock.now_ms()

    patch.setattr(Task, "waiting_for_buffer", waiting)


def a_connection_stays_stopped(patch: Patch) -> None:
    """Without credits it stops when there is no buffer for what comes next."""
    patch.setattr(Link, "resume", lambda link: None)


def an_input_that_was_never_asked_for_is_kept(patch: Patch) -> None:
    real = Gate.close

    def close(gate: Gate) -> None:
        if gate._requested:
            real(gate)

    patch.setattr(Gate, "close", close)


def an_output_that_nobody_has_asked_for_is_kept(patch: Patch) -> None:
    patch.setattr(DeployedTasks, "release_partitions", lambda tasks: None)


def every(count: int) -> Callable[[], bool]:
    """True at every so-manieth call."""
    calls = 0

    def now() -> bool:
        nonlocal calls
        calls += 1
        return calls % count == 0

    return now


STUCK = ("does not go on", "left open", "was not told")
BROKEN = ("damaged", "Element", "middle of an element", "Error", "came after", "not sent")
BUGS = {
    credit_is_not_spent: ("credits at the sender", "gave no credit", "without credit"),
    credit_is_announced_twice: ("credits at the sender", "gave no credit"),
    credit_is_forgotten: ("credits at the sender",),
    a_buffer_is_dropped: (*BROKEN, "did not get"),
    a_buffer_comes_twice: BROKEN,
    buffers_change_places: BROKEN,
    a_lease_leaks: ("readers", "nowhere"),
    a_lease_is_released_twice: ("two places", "released twice", "AssertionError"),
    a_segment_is_forgotten_at_release: ("nowhere",),
    a_reader_is_not_told: STUCK,
    a_flush_does_nothing: ("not flushed in time",),
    flushes_are_put_off: ("too long",),
    backlog_is_not_announced: STUCK,
    a_lost_connection_is_kept_secret: ("was not told",),
    a_silent_peer_is_not_noticed: STUCK,
    a_connection_stays_stopped: STUCK,
    an_input_that_was_never_asked_for_is_kept: ("segments", "nowhere"),
    an_output_that_nobody_has_asked_for_is_kept: ("segments", "nowhere", "outputs"),
    a_writer_is_not_woken: STUCK,
    a_reader_is_not_told_of_a_bundle: STUCK,
    a_task_stays_suspended: (*STUCK, "no end after"),
    a_source_is_not_woken_when_it_is_due: STUCK,
    a_wake_that_comes_during_a_poll_is_lost: STUCK,
    a_source_sleeps_over_its_wakes: STUCK,
    a_readable_descriptor_does_not_rouse_its_source: STUCK,
    a_late_place_is_not_requested: STUCK,
    bytes_and_bundles_change_places: ("AssertionError", "came after", "after watermark"),
    shared_records_are_handed_over: ("came after", "not sent", "did not get"),
    the_rest_of_a_bundle_is_lost: ("did not get", "not sent"),
    staged_records_come_twice: ("came after", "not sent"),
    a_watermark_overtakes_records: ("after watermark",),
    event_time_follows_the_fastest: ("after watermark",),
    the_last_watermark_is_forgotten: ("ended with event time",),
    an_operator_is_not_closed: ("opened 1 times",),
    the_loan_is_not_called_back: ("while its baton is lent",),
    time_is_lost: ("has lived",),
}


RARE = {
    a_segment_is_forgotten_at_release: 90,
    a_silent_peer_is_not_noticed: 90,
    shared_records_are_handed_over: 100,
}
"""Seeds to begin with, for bugs that few programs show."""


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found_and_can_be_replayed(
    bug: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    bug(monkeypatch)
    failure = first_failure(RARE.get(bug, 0))
    assert any(part in failure.problem for part in BUGS[bug]), failure.problem
    assert f"make sim SCENARIO=jobs SEED={failure.seed}" in str(failure)


def first_failure(start: int) -> RunFailed:
    for seed in range(start, start + SEEDS):
        try:
            simulate_job(seed)
        except RunFailed as failure:
            return failure
    pytest.fail(f"{SEEDS} seeds did not find it")
