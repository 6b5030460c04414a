"""The watermark valve, as a specification. Rows 164, 165, 166."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS, StreamStatus, Watermark
from headgate.core.ingress.valve import WatermarkValve, slowest_input

IDLE, ACTIVE = StreamStatus(active=False), StreamStatus(active=True)
END = Watermark(MAX_WATERMARK_MS)
RESTING = StreamStatus(active=False, together=True)
AWAITING = StreamStatus(active=False, together=True, awaits_splits=True)
STATUSES = (IDLE, ACTIVE, RESTING, AWAITING)


def test_one_channel_passes_its_watermarks_but_none_that_goes_back() -> None:
    valve = WatermarkValve(1)
    assert valve.watermark_received(Watermark(5), 0) == [Watermark(5)]
    assert valve.watermark_received(Watermark(5), 0) == []
    assert valve.watermark_received(Watermark(3), 0) == []
    assert valve.watermark_received(Watermark(6), 0) == [Watermark(6)]


def test_the_valve_waits_for_the_slowest_active_channel() -> None:
    valve = WatermarkValve(3)
    assert valve.watermark_received(Watermark(10), 0) == []
    assert valve.watermark_received(Watermark(7), 1) == []
    assert valve.watermark_received(Watermark(9), 2) == [Watermark(7)]
    assert valve.watermark_received(Watermark(12), 1) == [Watermark(9)]


def test_an_idle_channel_is_not_waited_for() -> None:
    valve = WatermarkValve(2)
    assert valve.watermark_received(Watermark(10), 0) == []
    assert valve.status_received(IDLE, 1) == [Watermark(10)]
    assert valve.watermark_received(Watermark(11), 0) == [Watermark(11)]
    assert valve.watermark_received(Watermark(99), 1) == []  # idle channels do not speak


def test_a_channel_that_is_active_again_counts_when_it_has_caught_up() -> None:
    valve = WatermarkValve(2)
    valve.watermark_received(Watermark(2), 1)
    valve.status_received(IDLE, 1)
    valve.watermark_received(Watermark(10), 0)
    assert valve.status_received(ACTIVE, 1) == []
    assert valve.watermark_received(Watermark(12), 0) == [Watermark(12)]  # it is still behind
    assert valve.watermark_received(Watermark(8), 1) == []
    assert valve.watermark_received(Watermark(13), 1) == []  # now it counts
    assert valve.watermark_received(Watermark(20), 0) == [Watermark(13)]


def test_idleness_is_told_when_the_last_channel_falls_idle_and_activity_at_the_first() -> None:
    valve = WatermarkValve(2)
    assert valve.status_received(IDLE, 0) == []
    assert valve.status_received(IDLE, 0) == []
    assert valve.status_received(IDLE, 1) == [IDLE]
    assert valve.status_received(ACTIVE, 1) == [ACTIVE]
    assert valve.status_received(ACTIVE, 0) == []


def test_when_the_slowest_falls_idle_last_the_fastest_comes_out() -> None:
    valve = WatermarkValve(2)
    valve.watermark_received(Watermark(5), 0)
    valve.watermark_received(Watermark(9), 1)
    assert valve.status_received(IDLE, 1) == []
    assert valve.status_received(IDLE, 0) == [Watermark(9), IDLE]


def test_a_channel_that_has_ended_is_not_waited_for() -> None:
    valve = WatermarkValve(2)
    valve.watermark_received(Watermark(4), 1)
    assert valve.channel_ended(0) == [Watermark(4)]


def test_the_end_of_event_time_comes_when_all_channels_have_reached_it() -> None:
    valve = WatermarkValve(2)
    valve.watermark_received(Watermark(4), 1)
    assert valve.watermark_received(END, 0) == [Watermark(4)]
    assert valve.channel_ended(0) == []
    assert valve.watermark_received(Watermark(9), 1) == [Watermark(9)]
    assert valve.watermark_received(END, 1) == [END]


def test_the_end_of_event_time_does_not_wait_for_channels_that_are_idle() -> None:
    for ends_first in (True, False):
        valve = WatermarkValve(2)
        valve.watermark_received(Watermark(4), 1)
        if ends_first:
            valve.watermark_received(END, 0)
            valve.channel_ended(0)
            assert valve.status_received(IDLE, 1) == [END]
        else:
            valve.status_received(IDLE, 1)
            assert valve.watermark_received(END, 0) == [END]
            assert valve.channel_ended(0) == []
        assert valve.active
        assert valve.status_received(ACTIVE, 1) == []
        assert valve.watermark_received(Watermark(9), 1) == []


def test_the_end_of_event_time_waits_for_a_channel_that_is_active_again_and_behind() -> None:
    valve = WatermarkValve(2)
    valve.status_received(IDLE, 1)
    valve.watermark_received(Watermark(4), 0)
    valve.status_received(ACTIVE, 1)
    assert valve.watermark_received(END, 0) == []
    assert valve.watermark_received(Watermark(9), 1) == [Watermark(9)]


def test_a_channel_that_ends_without_the_end_of_event_time_leaves_it_to_the_others() -> None:
    valve = WatermarkValve(3)
    for channel, reached_ms in enumerate((3, 8, 5)):
        valve.watermark_received(Watermark(reached_ms), channel)
    assert valve.channel_ended(0) == [Watermark(5)]
    assert valve.status_received(IDLE, 1) == []
    assert valve.status_received(IDLE, 2) == [Watermark(8), IDLE]


def test_a_channel_that_rests_counts_while_another_one_of_its_stream_is_active() -> None:
    valve = WatermarkValve(2)
    for channel in (0, 1):
        valve.watermark_received(Watermark(10), channel)
    assert valve.status_received(RESTING, 0) == []
    assert valve.watermark_received(Watermark(20), 1) == [], "what wakes it is on its way there"
    assert valve.status_received(ACTIVE, 0) == []
    assert valve.watermark_received(Watermark(15), 0) == [Watermark(15)]
    assert valve.watermark_received(END, 1) == []
    assert valve.status_received(RESTING, 0) == []
    assert valve.status_received(ACTIVE, 0) == []
    assert valve.watermark_received(END, 0) == [END]


def test_when_all_channels_rest_nothing_comes_out_that_not_all_have_reached() -> None:
    valve = WatermarkValve(2)
    valve.watermark_received(Watermark(10), 0)
    valve.watermark_received(Watermark(20), 1)
    assert valve.status_received(AWAITING, 1) == []
    assert valve.status_received(AWAITING, 0) == [AWAITING], "an older rest may have come late"
    assert valve.status_received(ACTIVE, 1) == [ACTIVE]
    assert valve.watermark_received(Watermark(30), 1) == []
    assert valve.status_received(ACTIVE, 0) == []
    assert valve.watermark_received(Watermark(25), 0) == [Watermark(25)]


def test_a_stream_that_rests_holds_back_no_other_stream_of_a_union() -> None:
    valve = WatermarkValve(2, 1)
    for channel in range(3):
        valve.watermark_received(Watermark(10), channel)
    assert valve.watermark_received(Watermark(50), 2) == []
    assert valve.status_received(RESTING, 0) == []
    assert valve.status_received(RESTING, 1) == [Watermark(50)]
    assert valve.status_received(IDLE, 2) == [IDLE], "one of them is idle for itself"


def test_a_stream_that_awaits_splits_is_not_taken_for_one_that_is_idle_when_others_end() -> None:
    for status, outcome in ((AWAITING, [Watermark(20), AWAITING]), (RESTING, [END])):
        valve = WatermarkValve(1, 1)
        valve.watermark_received(Watermark(20), 0)
        valve.watermark_received(Watermark(10), 1)
        valve.status_received(status, 0)
        assert valve.watermark_received(END, 1) == outcome
        valve.check()
    valve = WatermarkValve(1, 1)
    valve.watermark_received(END, 1)
    assert valve.status_received(AWAITING, 0) == [AWAITING]
    assert valve.status_received(ACTIVE, 0) == [ACTIVE]
    assert valve.watermark_received(Watermark(5), 0) == [Watermark(5)]


def test_of_two_inputs_the_slower_active_one_decides() -> None:
    assert slowest_input([(5, ACTIVE), (3, ACTIVE)]) == 3
    assert slowest_input([(5, ACTIVE), (3, IDLE)]) == 5
    assert slowest_input([(5, IDLE), (3, IDLE)]) is None
    assert slowest_input([(MAX_WATERMARK_MS, ACTIVE), (3, IDLE)]) == MAX_WATERMARK_MS
    assert slowest_input([(MAX_WATERMARK_MS, ACTIVE), (3, AWAITING)]) == 3
    assert slowest_input([(MAX_WATERMARK_MS, ACTIVE), (3, ACTIVE)]) == 3
    assert slowest_input([(MAX_WATERMARK_MS, ACTIVE)] * 2) == MAX_WATERMARK_MS


@given(
    channels=st.integers(1, 4),
    happenings=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(STATUSES) | st.integers(-5, 20)),
        max_size=60,
    ),
)
def test_event_time_never_goes_back_nor_ahead_of_who_counts(
    channels: int, happenings: list[tuple[int, StreamStatus | int]]
) -> None:
    valve = WatermarkValve(channels)
    seen, status = MIN_WATERMARK_MS, ACTIVE
    reached = [MIN_WATERMARK_MS] * channels
    for number, what in happenings:
        channel = number % channels
        if isinstance(what, StreamStatus):
            outcome = valve.status_received(what, channel)
        else:
            reached[channel] = max(reached[channel], what)
            outcome = valve.watermark_received(Watermark(what), channel)
        for element in outcome:
            if isinstance(element, Watermark):
                assert element.timestamp_ms > seen
                assert element.timestamp_ms <= max(reached)
                seen = element.timestamp_ms
            else:
                assert element.active != status.active
                status = element
        assert valve.watermark_ms == seen
        valve.check()
