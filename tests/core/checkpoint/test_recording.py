"""What unaligned checkpoints keep of the inputs. The law over random inputs: test_alignment."""

from headgate.base.elements import Bundle, PickleSerializer
from headgate.base.events import END_OF_PARTITION, CancelMarker, CheckpointBarrier, encode_event
from headgate.core.buffers.buffer import Buffer, bundle_bytes
from headgate.core.checkpoint.inputs import InFlightRecorder

PICKLE = PickleSerializer()


def recorder(channels: int = 2, limit_bytes: int = 100) -> InFlightRecorder:
    return InFlightRecorder([PICKLE] * channels, lambda data: bytes(data).lower(), limit_bytes)


def barrier(checkpoint: int) -> Buffer:
    return Buffer(encode_event(CheckpointBarrier(checkpoint, 0)), is_event=True)


def test_record_begins_with_what_was_not_processed_and_what_waits() -> None:
    record = recorder()
    assert record.started(1, 0, b"unread", [Buffer(b"a"), Buffer(b"b")])
    record.channel_done(1, 0)
    assert record.completed(1) == {0: [b"unread", b"a", b"b"]}


def test_what_waits_behind_the_barrier_does_not_belong() -> None:
    record = recorder()
    record.started(1, 0, b"", [Buffer(b"a"), barrier(1), Buffer(b"b")])
    assert record.recording == [0, 0]
    record.arrived(0, Buffer(b"c"))
    assert record.completed(1) == {0: [b"a"]}


def test_what_arrives_belongs_until_the_barrier_arrives() -> None:
    record = recorder()
    record.started(1, 0, b"", [])
    record.arrived(0, Buffer(b"a"))
    record.arrived(1, Buffer(b"of another channel"))
    record.arrived(0, barrier(1))
    record.arrived(0, Buffer(b"later"))
    assert record.completed(1) == {0: [b"a"]}


def test_other_events_do_not_end_a_channel_but_its_end_does() -> None:
    record = recorder()
    marker = Buffer(encode_event(CancelMarker(9)), is_event=True)
    record.started(2, 0, b"", [Buffer(b"a"), barrier(1), marker, Buffer(b"b")])
    record.arrived(0, marker)
    record.arrived(0, Buffer(b"c"))
    record.arrived(0, Buffer(encode_event(END_OF_PARTITION), is_event=True))
    assert record.completed(2) == {0: [b"a", b"b", b"c"]}


def test_two_checkpoints_may_record_the_same_channel() -> None:
    record = recorder()
    record.started(1, 0, b"", [])
    record.arrived(0, Buffer(b"a"))
    record.started(2, 0, b"", [Buffer(b"a")])
    record.arrived(0, Buffer(b"b"))
    record.arrived(0, barrier(1))
    record.arrived(0, Buffer(b"c"))
    record.arrived(0, barrier(2))
    record.check()
    assert record.completed(1) == {0: [b"a", b"b"]}
    assert record.completed(2) == {0: [b"a", b"b", b"c"]}


def test_compressed_buffers_are_kept_expanded() -> None:
    record = recorder()
    record.started(1, 0, b"", [Buffer(b"PACKED", compressed=True), Buffer(b"PLAIN"), barrier(1)])
    assert record.completed(1) == {0: [b"packed", b"PLAIN"]}


def test_records_by_reference_are_kept_as_they_were_when_they_came() -> None:
    record = recorder()
    record.started(1, 0, b"", [])
    records: list[list[int]] = [[1], [2]]
    record.arrived(0, Buffer(b"", bundle=Bundle(records)))
    records[0].append(99)
    record.arrived(0, barrier(1))
    assert record.completed(1) == {0: [bundle_bytes(Bundle([[1], [2]]), PICKLE)]}


def test_a_checkpoint_that_holds_too_much_is_dropped() -> None:
    record = recorder(limit_bytes=10)
    assert record.started(1, 0, b"12345678", [])
    assert record.arrived(0, Buffer(b"9")) == []
    assert record.arrived(0, Buffer(b"ab")) == [1]
    assert record.recording == [0, 0]
    assert record.completed(1) == {}
    assert not record.started(2, 1, b"far too much", [])
    assert record.recording == [0, 0]
    assert record.completed(2) == {}


def test_dropping_and_ending_twice_changes_nothing() -> None:
    record = recorder()
    record.started(1, 0, b"x", [])
    record.channel_done(1, 0)
    record.channel_done(1, 0)
    record.dropped(1)
    record.dropped(1)
    record.check()
    assert record.completed(1) == {}


def test_channels_without_data_are_left_out() -> None:
    record = recorder()
    record.started(1, 0, b"", [barrier(1)])
    assert record.completed(1) == {}
