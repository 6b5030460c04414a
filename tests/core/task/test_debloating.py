"""How long buffers should be: what waits is what is consumed in the target time, within bounds."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headgate.base.settings import KIB, ExchangeSettings
from headgate.core.task.debloating import CoreTime, Debloater, InputTotals

SETTINGS = ExchangeSettings()
PERIOD_MS = float(SETTINGS.debloat_period_ms)
SAMPLES = SETTINGS.debloat_samples
SEGMENT = SETTINGS.segment_bytes
LEAST = SETTINGS.min_buffer_bytes


class Input:
    """A task's input as the debloater sees it; every look is a period later."""

    def __init__(self, settings: ExchangeSettings = SETTINGS) -> None:
        self.debloater = Debloater(settings)
        self.sizes: list[int] = []
        self._consumed, self._buffers, self._with_data_ms = 0.0, 0, 0.0
        self._on_core_ms = 0.0

    def look(
        self, consumed: float, waiting: int, busy_ms: float = PERIOD_MS, core_share: float = 1.0
    ) -> None:
        self._consumed += consumed
        self._buffers += int(consumed > 0)
        self._with_data_ms += busy_ms
        self._on_core_ms += busy_ms * core_share
        totals = InputTotals(self._consumed, self._buffers, self._with_data_ms, self._on_core_ms)
        size = self.debloater.looked(totals, waiting)
        if size is not None:
            self.sizes.append(size)

    def run(self, bytes_per_ms: float, waiting: int, looks: int = SAMPLES) -> None:
        for _ in range(looks):
            self.look(bytes_per_ms * PERIOD_MS, waiting)

    @property
    def size(self) -> int:
        return self.debloater.size


rates = st.floats(0.001, 1e6)
counts = st.integers(1, 500)


@given(rates, counts)
def test_at_a_constant_rate_what_waits_is_what_the_target_time_takes(
    bytes_per_ms: float, waiting: int
) -> None:
    source = Input()
    source.run(bytes_per_ms, waiting)
    wanted = bytes_per_ms * SETTINGS.debloat_target_ms / waiting
    if wanted >= SEGMENT:
        assert source.size == SEGMENT
    elif wanted <= LEAST:
        assert source.size == LEAST
    else:
        assert abs(source.size - wanted) <= source.size * SETTINGS.debloat_threshold_percent / 100


@given(rates, rates, counts)
def test_after_as_many_looks_as_count_the_old_rate_is_forgotten(
    before: float, after: float, waiting: int
) -> None:
    changed, fresh = Input(), Input()
    changed.run(before, waiting, 50)
    changed.run(after, waiting)
    fresh.run(after, waiting)
    # Both are within the threshold of what is right.
    assert changed.size <= fresh.size * 1.7 + 1
    assert fresh.size <= changed.size * 1.7 + 1


@given(
    st.lists(st.tuples(st.floats(0, 1e7), st.integers(0, 100), st.floats(0, 500)), max_size=60),
    st.sampled_from((1, 100, 256, 4 * KIB, 32 * KIB)),
    st.sampled_from((1, 256, 1000)),
)
def test_the_size_is_never_out_of_bounds_and_told_only_when_it_changes(
    looks: list[tuple[float, int, float]], segment_bytes: int, least: int
) -> None:
    settings = replace(SETTINGS, segment_bytes=segment_bytes, min_buffer_bytes=least)
    source = Input(settings)
    for consumed, waiting, busy_ms in looks:
        before, messages = source.size, len(source.sizes)
        source.look(consumed, waiting, busy_ms)
        assert min(least, segment_bytes) <= source.size <= segment_bytes
        assert (len(source.sizes) > messages) == (source.size != before)
        assert source.debloater.in_flight_ms >= 0
        if waiting == 0:
            assert source.size >= before, "nothing waits, so nothing need shrink"
            assert source.debloater.in_flight_ms == 0


def test_a_slow_consumer_gets_short_buffers_and_long_ones_when_it_is_fast_again() -> None:
    source = Input()
    source.run(10.0, waiting=20)
    assert source.size == 500
    source.run(10_000.0, waiting=20)
    assert source.size == SEGMENT


def test_time_in_which_there_was_nothing_to_consume_does_not_count() -> None:
    source, idle = Input(), Input()
    source.run(100.0, waiting=20)
    idle.run(100.0, waiting=20)
    for _ in range(100):
        idle.look(0.0, waiting=0, busy_ms=0.0)
    assert idle.size == source.size
    for _ in range(SAMPLES):  # a tenth of the time, at the same rate while there is something
        idle.look(100.0 * PERIOD_MS / 10, waiting=20, busy_ms=PERIOD_MS / 10)
    assert idle.size == source.size


def test_a_task_that_has_time_left_keeps_long_buffers() -> None:
    """It is never behind, so its rate says nothing about what it could do."""
    source = Input()
    source.run(0.5, waiting=0, looks=5 * SAMPLES)
    assert source.size == SEGMENT
    assert source.sizes == []


def test_it_takes_evidence_to_shrink_but_none_to_grow() -> None:
    source = Input()
    source.look(10.0, waiting=20)
    assert source.size == SEGMENT, "one slow look may be an accident"
    source.run(10.0, waiting=20)
    assert source.size < SEGMENT
    shrunk = source.size
    source.look(1e7, waiting=20)
    assert source.size > shrunk


def test_evidence_can_be_had_however_short_the_looks_are_against_the_target() -> None:
    source = Input(replace(SETTINGS, debloat_target_ms=60_000, debloat_samples=2))
    source.run(0.01, waiting=20, looks=2)
    assert source.size == LEAST


def test_an_element_that_takes_longer_than_all_looks_is_not_a_standstill() -> None:
    """Ten megabytes at once, every ten seconds: a megabyte a second, whatever the looks show."""
    source = Input()
    for _ in range(6):
        source.look(10e6, waiting=10)
        for _ in range(49):
            source.look(0.0, waiting=10)
        assert source.size == SEGMENT


def test_nothing_consumed_at_all_tells_nothing() -> None:
    source = Input()
    source.run(0.0, waiting=20, looks=100)
    assert source.size == SEGMENT


def test_the_most_that_waited_lately_counts_or_a_moment_of_luck_would_fill_the_queue() -> None:
    source = Input()
    source.run(10.0, waiting=20)
    size = source.size
    source.look(10.0 * PERIOD_MS, waiting=1)
    assert source.size == size


@given(st.integers(0, 100), counts)
def test_small_changes_are_not_worth_a_message(percent: int, waiting: int) -> None:
    """From one rate to another: told if the size changes by the threshold, or reaches a bound."""
    settings = replace(SETTINGS, debloat_threshold_percent=30, debloat_samples=1)
    source = Input(settings)
    source.run(10.0 * waiting, waiting, looks=30)
    assert source.size == 10_000
    messages = len(source.sizes)
    source.run(10.0 * waiting * (1 + percent / 100), waiting, looks=1)
    assume(percent != 30)  # on the edge, where rounding decides
    assert (len(source.sizes) > messages) == (percent > 30)


@pytest.mark.parametrize("threshold", [0, 25, 100])
def test_the_bounds_are_reached_whatever_the_threshold(threshold: int) -> None:
    source = Input(replace(SETTINGS, debloat_threshold_percent=threshold))
    source.run(6.0, waiting=20)
    source.run(0.1, waiting=20)
    assert source.size == LEAST
    source.run(1e6, waiting=20)
    assert source.size == SEGMENT


def test_the_time_in_flight_is_what_waits_by_the_rate() -> None:
    source = Input()
    for _ in range(SAMPLES):
        source.look(1000.0, waiting=30)  # a buffer in each look
    assert source.debloater.in_flight_ms == pytest.approx(30 * PERIOD_MS)
    source.look(0.0, waiting=3, busy_ms=0.0)
    assert source.debloater.in_flight_ms == pytest.approx(3 * PERIOD_MS)


@given(st.floats(1.0, 1e4), counts, st.integers(2, 100))
def test_time_without_a_core_does_not_shorten_buffers(
    bytes_per_ms: float, waiting: int, threads: int
) -> None:
    """A task that gets a part of a core has the buffers that it would have with all of it."""
    alone, crowded = Input(), Input()
    for _ in range(SAMPLES * threads):
        alone.look(bytes_per_ms * PERIOD_MS, waiting)
        crowded.look(bytes_per_ms * PERIOD_MS / threads, waiting, core_share=1 / threads)
    assert crowded.size == pytest.approx(alone.size, abs=1)
    assert crowded.debloater.in_flight_ms == pytest.approx(alone.debloater.in_flight_ms)


def test_a_wait_for_a_core_that_is_told_late_is_left_out_of_what_follows() -> None:
    time = CoreTime(1000.0)
    for look in range(1, 101):
        time.passed(10.0 * look, look // 4 * 38.0)  # 38 of 40 ms, told when they are over
    assert time.spent_ms == 1000
    assert time.on_core_ms <= 100


def test_what_many_threads_wait_at_once_is_not_left_out_forever() -> None:
    time = CoreTime(1000.0)
    time.passed(5_000.0, 50_000.0)
    assert time.on_core_ms == 0
    time.passed(10_000.0, 50_000.0)
    assert time.on_core_ms == 4_000
