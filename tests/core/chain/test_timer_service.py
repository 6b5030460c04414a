"""Timers: once for each time and key, in order, and few mails for many of them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS
from headgate.core.chain.keyed_context import InternalTimerService
from headgate.core.state.memory import MemoryBackend
from headgate.functions.context import TimeDomain
from tests.core.chain.kit import NOW_MS, HandClock


class Bench:
    """A timer service with a list of what has fired."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.backend = MemoryBackend(range(128), 128)
        self.fired: list[tuple[int, Any, TimeDomain]] = []
        self.rounds = 0
        self.timers = InternalTimerService(
            self.backend, self.clock.context(), self._fire, self._done
        )
        self.also: Any = None

    def at(self, key: Any) -> InternalTimerService:
        self.backend.cursor.key = key
        return self.timers

    def _fire(self, time_ms: int, domain: TimeDomain) -> None:
        self.fired.append((time_ms, self.backend.cursor.key, domain))
        if self.also is not None:
            self.also(time_ms)

    def _done(self) -> None:
        self.rounds += 1


timers = st.lists(st.tuples(st.integers(-20, 20), st.sampled_from("ab")), max_size=20)


@given(timers, timers, st.lists(st.integers(-25, 25), max_size=5))
def test_event_time_timers_fire_once_in_the_order_of_their_times(
    wanted: list[tuple[int, str]], unwanted: list[tuple[int, str]], marks: list[int]
) -> None:
    bench = Bench()
    for time_ms, key in wanted:
        bench.at(key).register_event_time_timer(time_ms)
    for time_ms, key in unwanted:
        bench.at(key).delete_event_time_timer(time_ms)
    for mark in [*sorted(marks), MAX_WATERMARK_MS]:
        bench.timers.watermark_advanced(mark)
        assert bench.timers.current_watermark() == mark
        assert all(time_ms <= mark for time_ms, _, _ in bench.fired)
    times = [time_ms for time_ms, _, _ in bench.fired]
    assert times == sorted(times)
    left = set(wanted) - set(unwanted)
    assert sorted((time_ms, key) for time_ms, key, _ in bench.fired) == sorted(left)
    assert {domain for _, _, domain in bench.fired} <= {TimeDomain.EVENT_TIME}


def test_a_timer_that_is_not_later_than_the_watermark_fires_at_the_next_advance() -> None:
    bench = Bench()
    bench.timers.watermark_advanced(100)
    bench.at("k").register_event_time_timer(100)
    bench.at("k").register_event_time_timer(7)
    assert bench.fired == []
    bench.timers.watermark_advanced(101)
    assert [time_ms for time_ms, _, _ in bench.fired] == [7, 100]


def test_what_a_timer_registers_for_a_time_that_has_come_fires_in_the_same_advance() -> None:
    bench = Bench()
    bench.also = lambda time_ms: (
        bench.timers.register_event_time_timer(time_ms + 10) if time_ms < 40 else None
    )
    bench.at("k").register_event_time_timer(10)
    bench.timers.watermark_advanced(35)
    assert [time_ms for time_ms, _, _ in bench.fired] == [10, 20, 30]
    bench.timers.watermark_advanced(MAX_WATERMARK_MS)
    assert [time_ms for time_ms, _, _ in bench.fired] == [10, 20, 30, 40]


def test_before_the_first_watermark_event_time_is_the_smallest() -> None:
    assert Bench().timers.current_watermark() == MIN_WATERMARK_MS


def test_processing_time_is_the_clock_of_the_task() -> None:
    bench = Bench()
    bench.clock.now_ms = 17
    assert bench.timers.current_processing_time() == 17


@given(timers, timers, st.lists(st.integers(0, 50), max_size=6))
def test_processing_time_timers_fire_once_and_not_early(
    wanted: list[tuple[int, str]], unwanted: list[tuple[int, str]], moves: list[int]
) -> None:
    bench = Bench()
    for time_ms, key in wanted:
        bench.at(key).register_processing_time_timer(NOW_MS + time_ms)
    for time_ms, key in unwanted:
        bench.at(key).delete_processing_time_timer(NOW_MS + time_ms)
    for move in sorted(moves):
        bench.clock.move_to(NOW_MS + move)
        assert all(time_ms <= NOW_MS + move for time_ms, _, _ in bench.fired)
    bench.clock.move_to(NOW_MS + 60)
    left = sorted((NOW_MS + time_ms, key) for time_ms, key in set(wanted) - set(unwanted))
    assert sorted((time_ms, key) for time_ms, key, _ in bench.fired) == left
    assert {domain for _, _, domain in bench.fired} <= {TimeDomain.PROCESSING_TIME}
    assert not bench.clock.mails


def test_many_timers_of_processing_time_need_one_mail() -> None:
    bench = Bench()
    for number in range(1000):
        bench.at(number).register_processing_time_timer(NOW_MS + 100 + number // 10)
    assert bench.clock.asked == 1
    bench.clock.move_to(NOW_MS + 150)
    assert len(bench.fired) == 510
    assert bench.clock.asked == 52, "a mail for each time, none for each timer"


def test_mails_that_an_earlier_timer_has_replaced_do_not_multiply() -> None:
    bench = Bench()
    for time_ms in (300, 200, 100):
        bench.at("k").register_processing_time_timer(NOW_MS + time_ms)
    assert bench.clock.asked == 3
    bench.also = lambda time_ms: (
        bench.timers.register_processing_time_timer(time_ms + 1000) if len(bench.fired) < 50 else 0
    )
    bench.clock.move_to(NOW_MS + 100_000)
    assert len(bench.fired) == 52
    assert bench.clock.asked < 3 * len(bench.fired)
    assert bench.rounds <= len(bench.fired), "a mail that was replaced looks for nothing"


def test_timers_of_one_mail_are_followed_by_one_call() -> None:
    bench = Bench()
    for number in range(5):
        bench.at(number).register_processing_time_timer(NOW_MS + 10)
    bench.clock.move_to(NOW_MS + 10)
    assert (len(bench.fired), bench.rounds) == (5, 1)


def test_after_close_no_timer_of_processing_time_fires() -> None:
    bench = Bench()
    bench.at("k").register_processing_time_timer(NOW_MS + 10)
    bench.timers.close()
    bench.clock.move_to(NOW_MS + 20)
    assert bench.fired == []


def test_restored_timers_of_processing_time_are_awaited() -> None:
    bench = Bench()
    bench.backend.processing_timers.register(NOW_MS + 5, "k")
    bench.timers.restored()
    bench.clock.move_to(NOW_MS + 5)
    assert bench.fired == [(NOW_MS + 5, "k", TimeDomain.PROCESSING_TIME)]


def test_namespaces_have_timers_of_their_own() -> None:
    bench = Bench()
    seen: list[Any] = []
    bench.also = lambda time_ms: seen.append(bench.backend.cursor.namespace)
    for namespace in (None, "left", "right"):
        bench.backend.cursor.namespace = namespace
        bench.at("k").register_event_time_timer(5)
    bench.timers.watermark_advanced(5)
    assert sorted(map(str, seen)) == ["None", "left", "right"]
    assert bench.backend.cursor.namespace is None


def test_times_must_be_whole_numbers() -> None:
    class Whole:
        def __index__(self) -> int:
            return 5

    bench = Bench()
    bench.at("k").register_event_time_timer(Whole())  # type: ignore[arg-type]
    bench.timers.watermark_advanced(5)
    assert bench.fired == [(5, "k", TimeDomain.EVENT_TIME)]
    for wrong in (1.5, "10", None):
        with pytest.raises(TypeError, match=r"a timer was given the time .*; give whole millis"):
            bench.at("k").register_event_time_timer(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="give whole milliseconds"):
            bench.at("k").register_processing_time_timer(wrong)  # type: ignore[arg-type]


def test_without_a_key_there_are_no_timers() -> None:
    bench = Bench()
    with pytest.raises(RuntimeError, match=r"no current key here.*broadcast stream"):
        bench.timers.register_event_time_timer(5)
    with pytest.raises(RuntimeError, match="no current key here"):
        bench.timers.register_processing_time_timer(5)
