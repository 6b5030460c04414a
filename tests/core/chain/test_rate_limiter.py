"""The rate of calls: what a bucket gives out in any time, and pauses that a server asks for."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headgate.core.chain.rate_limiter import MOST_PAUSE_MS, RateLimiter, TokenBucket


def begun(limiter: RateLimiter, cost: float, until_ms: float, now_ms: float = 0.0) -> list[float]:
    """When calls begin that come as fast as they may."""
    times = []
    while now_ms <= until_ms:
        wait_ms = limiter.wait_ms(cost, now_ms)
        if wait_ms == 0:
            limiter.take(cost)
            times.append(now_ms)
        now_ms += wait_ms
    return times


def test_requests_begin_at_their_rate_after_the_burst() -> None:
    times = begun(RateLimiter(10, None, 300), 1, 1000)
    assert times[:3] == [0, 0, 0]
    assert times[3:] == pytest.approx([100, 200, 300, 400, 500, 600, 700, 800, 900, 1000])


def test_without_a_burst_there_is_room_for_a_single_request() -> None:
    assert begun(RateLimiter(10, None, 0), 1, 250) == pytest.approx([0, 100, 200])


def test_cost_is_limited_as_well_and_the_slower_limit_counts() -> None:
    assert begun(RateLimiter(100, 1000, 100), 500, 1700) == pytest.approx([0, 500, 1000, 1500])
    assert len(begun(RateLimiter(2, 1_000_000, 0), 500, 1000)) == 3


def test_a_call_that_costs_more_than_the_burst_leaves_and_others_pay_for_it() -> None:
    limiter = RateLimiter(None, 100, 1000)
    assert limiter.wait_ms(1000, 0) == 0
    limiter.take(1000)
    assert limiter.wait_ms(1, 0) == pytest.approx(9010)


def test_a_limiter_without_limits_lets_everything_through() -> None:
    limiter = RateLimiter(None, None, 0)
    for _ in range(5):
        assert limiter.wait_ms(1e9, 0) == 0
        limiter.take(1e9)


def test_nothing_begins_before_the_server_wants_it() -> None:
    limiter = RateLimiter(None, None, 0)
    limiter.refused(2000, 100)
    limiter.refused(500, 200)  # of a call that was made before
    assert limiter.wait_ms(0, 200) == 1900
    assert limiter.wait_ms(0, 2100) == 0


def test_pauses_double_while_the_server_does_not_say_how_long() -> None:
    limiter = RateLimiter(None, None, 0)
    now_ms, pauses = 0.0, []
    for _ in range(9):
        limiter.refused(None, now_ms)
        limiter.refused(None, now_ms)  # several calls of the same moment are one refusal
        pauses.append(limiter.wait_ms(0, now_ms))
        now_ms += pauses[-1]
    assert pauses[:3] == [1000, 2000, 4000]
    assert pauses[-1] == MOST_PAUSE_MS
    limiter.accepted()
    limiter.refused(None, now_ms)
    assert limiter.wait_ms(0, now_ms) == 1000


def test_a_clock_that_goes_back_fills_nothing() -> None:
    bucket = TokenBucket(10, 1)
    assert bucket.wait_ms(1, 500) == 0
    bucket.take(1)
    assert bucket.wait_ms(1, 400) == pytest.approx(100)


class BucketTwin(RuleBasedStateMachine):
    """In any stretch of time no more leaves than the law allows, and all who wait may leave."""

    RATE, CAPACITY = 20, 5

    def __init__(self) -> None:
        super().__init__()
        self.bucket = TokenBucket(self.RATE, self.CAPACITY)
        self.now_ms = 0.0
        self.taken: list[tuple[float, float]] = []

    @rule(ms=st.floats(0, 700))
    def time_passes(self, ms: float) -> None:
        self.now_ms += ms

    @rule(amount=st.floats(0.1, 5))
    def call_comes(self, amount: float) -> None:
        if self.bucket.wait_ms(amount, self.now_ms) == 0:
            self.bucket.take(amount)
            self.taken.append((self.now_ms, amount))

    @rule(amount=st.floats(0.1, 5))
    def call_waits(self, amount: float) -> None:
        self.now_ms += self.bucket.wait_ms(amount, self.now_ms)
        assert self.bucket.wait_ms(amount, self.now_ms) == 0, "who has waited may go"
        self.call_comes(amount)

    @invariant()
    def no_stretch_has_too_much(self) -> None:
        for place, (from_ms, _) in enumerate(self.taken):
            total = sum(amount for _, amount in self.taken[place:])
            allowed = self.CAPACITY + self.RATE * (self.taken[-1][0] - from_ms) / 1000
            assert total <= allowed + 0.001 * len(self.taken)


TestBucketTwin = BucketTwin.TestCase
