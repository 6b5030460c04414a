"""Results by key: how long, how many, and one call for all who ask at once."""

from collections.abc import Hashable

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headgate.core.chain.async_queue import PendingCall
from headgate.core.chain.batch_scheduler import ResultCache


def value(cache: ResultCache, key: Hashable, now_ms: float) -> object:
    found = cache.find(key, now_ms)
    return None if found is None else found.value


def test_a_result_is_found_until_its_time_is_over() -> None:
    cache = ResultCache(10, 100)
    cache.store("a", 1, 50)
    assert value(cache, "a", 149) == 1
    assert value(cache, "a", 150) is None
    assert len(cache) == 0


def test_the_least_recently_used_gives_way() -> None:
    cache = ResultCache(2, 100)
    cache.store("a", 1, 0)
    cache.store("b", 2, 0)
    assert value(cache, "a", 1) == 1
    cache.store("c", 3, 1)
    assert [value(cache, key, 2) for key in "abc"] == [1, None, 3]


def test_those_who_ask_meanwhile_wait_for_the_call_in_flight() -> None:
    cache = ResultCache(2, 100)
    first, second, third = (PendingCall(number, None) for number in range(3))
    assert cache.try_begin("a", first)
    assert not cache.try_begin("a", second)
    assert not cache.try_begin("a", third)
    assert cache.ended("a") == [second, third]
    assert cache.try_begin("a", second), "the next one is called for again"


def test_a_key_that_cannot_be_hashed_is_refused_by_python() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        ResultCache(2, 100).find([], 0)  # type: ignore[arg-type]


class CacheTwin(RuleBasedStateMachine):
    """Against a list of (key, value, time), the least recently used first."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = ResultCache(3, 10)
        self.known: list[tuple[int, int, float]] = []
        self.called: dict[int, list[PendingCall]] = {}
        self.now_ms = 0.0
        self.number = 0

    @rule(ms=st.integers(0, 8))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule(key=st.integers(0, 5))
    def record_asks(self, key: int) -> None:
        entry = next((entry for entry in self.known if entry[0] == key), None)
        if entry is not None:
            self.known.remove(entry)
            if entry[2] > self.now_ms:
                self.known.append(entry)
                assert value(self.cache, key, self.now_ms) == entry[1]
                return
        assert self.cache.find(key, self.now_ms) is None
        call = PendingCall(key, None)
        assert self.cache.try_begin(key, call) == (key not in self.called)
        if key in self.called:
            self.called[key].append(call)
        else:
            self.called[key] = []

    @rule(key=st.integers(0, 5), succeeds=st.booleans())
    def call_ends(self, key: int, succeeds: bool) -> None:
        if key not in self.called:
            return
        assert self.cache.ended(key) == self.called.pop(key)
        if succeeds:
            self.number += 1
            self.cache.store(key, self.number, self.now_ms)
            self.known = [entry for entry in self.known if entry[0] != key]
            self.known.append((key, self.number, self.now_ms + 10))
            del self.known[:-3]

    @invariant()
    def it_is_as_large_as_the_model(self) -> None:
        self.cache.check()
        assert len(self.cache) == len(self.known)


TestCacheTwin = CacheTwin.TestCase
